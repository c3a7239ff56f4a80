package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/stint-go/stint/cmd/stint/internal/serve"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store/redisstore"
)

// serveFlags are the flags of stint serve that need more than a type.
type serveFlags struct {
	config                           serve.Config
	trust                            []string
	redis                            string
	redisTimeout                     time.Duration
	redisFile, secretFile, tokenFile string
	logFormat                        string
}

func serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve POLICY...",
		Short: "Decide requests for proxies (nginx, Traefik, Caddy, Envoy) and for services in other languages",
		Long: `Serve decides requests by policy files, for proxies that ask before they pass a request on: by forward
auth, or by Envoy's rate limit service. Services in other languages take, extend and settle permits over
HTTP, by key. It applies changes of the files at once. With --redis, replicas share exact counts. POLICY is
a file, or a folder of files. A file with a domain is for the rate limit service, and one without is for
forward auth and --listen-api, whose clients call it by its name without the extension.

It has no slots and sees no response: concurrency, bandwidth and settle in a file are mistakes, and so
are names of an application's functions.

Secrets come from files or the environment, never from arguments:

  of hashed keys, and of the tokens of --listen-api
                          --secret-file      STINT_SECRET
  the live page's token   --token-file       STINT_TOKEN
  Redis's password        --redis-password-file  STINT_REDIS_PASSWORD

The admin listener has /healthz, /readyz, /metrics and, with a token, the live page under /console/, and
/v1/reset and /v1/ban for the keys of --listen-api.
SIGTERM or SIGINT makes /readyz answer 503; after --drain the server stops, when the requests in flight have ended. A second signal ends it at once.

It exits with 1 if the file has a mistake, and with 2 on any other error.`,
		Example: `  stint serve --forward-auth nginx policy.yaml
  stint serve --forward-auth traefik --listen-auth :8081 --redis redis://10.0.0.7:6379 --trust 10.0.0.0/8 policy.yaml
  stint serve --rls :8082 --redis redis://10.0.0.7:6379 domains/
  stint serve --listen-api :8083 --redis redis://10.0.0.7:6379 --secret-file secret llm.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			switch configured := len(f.config.RateLimitConfigs) > 0; {
			case configured && len(args) > 0:
				return errors.New("policy files beside --ratelimit-config: leave one of both out")
			case configured && f.config.Proxy != "":
				return errors.New("--forward-auth beside --ratelimit-config: leave it out, or serve it with a policy file by another process")
			case configured && f.config.APIAddr != "":
				return errors.New("--listen-api beside --ratelimit-config: leave it out, or serve it with a policy file by another process")
			case configured && f.config.RLSAddr == "":
				return errors.New("--ratelimit-config without --rls: give --rls :8081")
			case !configured && len(args) == 0:
				return errors.New("no policy: write the file, or --ratelimit-config")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			f.config.Policies = args
			config, err := f.resolve(c)
			if err != nil {
				return err
			}
			redis.SetLogger(redisLog{config.Logger})
			interrupted := make(chan os.Signal, 1)
			signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(interrupted)
			server, err := serve.Start(c.Context(), config)
			if err != nil {
				return reportServed(c, err)
			}
			select {
			case err = <-server.Failed():
			case <-interrupted:
				signal.Stop(interrupted) // the next one ends the process
				config.Logger.Info("stopping", "drain", config.Drain.String())
			}
			return errors.Join(err, server.Stop())
		},
	}
	f.flags(c)
	return c
}

// flags adds the flags.
func (f *serveFlags) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.config.Proxy, "forward-auth", "", "the `PROXY` that asks: nginx, traefik, caddy or envoy")
	flags.StringVar(&f.config.AuthAddr, "listen-auth", ":8081", "the `ADDRESS` that forward auth listens on")
	flags.StringVar(&f.config.PathPrefix, "path-prefix", "",
		"the path_prefix of Envoy's ext_authz, which precedes each path")
	flags.StringVar(&f.config.RLSAddr, "rls", "",
		"the `ADDRESS` that Envoy's rate limit service listens on, such as :8082")
	flags.StringArrayVar(&f.config.RateLimitConfigs, "ratelimit-config", nil,
		"`FILE` or folder of the configuration of envoyproxy/ratelimit, in place of POLICY")
	flags.StringSliceVar(&f.trust, "trust", nil,
		"the `NETWORKS` of the proxies, which alone are answered and whose X-Forwarded-For is believed (default: loopback and private networks)")
	flags.StringVar(&f.config.APIAddr, "listen-api", "",
		"the `ADDRESS` that services in other languages ask, such as :8083")
	flags.DurationVar(&f.config.TokenLife, "token-life", time.Hour,
		"how long a permit's token may be used, at most 24h; each call returns a new one")
	flags.StringVar(&f.config.AdminAddr, "admin", "127.0.0.1:8084",
		"the `ADDRESS` of health, metrics and the live page; \"\" for none")
	flags.StringVar(&f.redis, "redis", "",
		"the `URL` of the Redis that keeps the counts, such as redis://10.0.0.7:6379/0, without a password")
	flags.DurationVar(&f.redisTimeout, "redis-timeout", redisTimeout,
		"how long a decision waits for Redis, before the policy's failure decides")
	flags.StringVar(&f.redisFile, "redis-password-file", "", "the `FILE` that has Redis's password")
	flags.StringVar(&f.secretFile, "secret-file", "",
		"the `FILE` that has the secret of hashed keys and of tokens, the same on all replicas")
	flags.StringVar(&f.tokenFile, "token-file", "",
		"the `FILE` that has the token of the live page and of /v1/reset and /v1/ban")
	flags.DurationVar(&f.config.Drain, "drain", 5*time.Second,
		"how long to serve on after SIGTERM, while load balancers notice")
	flags.StringVar(&f.logFormat, "log-format", "json", "`json` or text")
}

// resolve checks the flags, and reads the secrets.
func (f *serveFlags) resolve(c *cobra.Command) (serve.Config, error) {
	config := f.config
	switch f.logFormat {
	case "json":
		config.Logger = slog.New(slog.NewJSONHandler(c.ErrOrStderr(), nil))
	case "text":
		config.Logger = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
	default:
		return config, fmt.Errorf("--log-format %s: write json or text", f.logFormat)
	}
	switch {
	case config.Proxy == "" && config.RLSAddr == "" && config.APIAddr == "":
		return config, errors.New("nothing to serve: give --forward-auth nginx, traefik, caddy or envoy, --rls :8082, or --listen-api :8083")
	case config.Proxy != "" && !slices.Contains(serve.Proxies, config.Proxy):
		return config, fmt.Errorf("--forward-auth %s: write nginx, traefik, caddy or envoy", config.Proxy)
	case config.PathPrefix != "" && config.Proxy != "envoy":
		return config, fmt.Errorf("--path-prefix is for --forward-auth envoy: leave it out")
	case config.Proxy == "" && c.Flags().Changed("listen-auth"):
		return config, errors.New("--listen-auth without --forward-auth: leave it out")
	case config.APIAddr == "" && c.Flags().Changed("token-life"):
		return config, errors.New("--token-life without --listen-api: leave it out")
	case config.TokenLife < time.Second || config.TokenLife > serve.LongestLife:
		return config, fmt.Errorf("--token-life %v: write a second to %v", config.TokenLife, serve.LongestLife)
	case config.Drain < 0:
		return config, fmt.Errorf("--drain %v: write 0s or more", config.Drain)
	case f.redisTimeout < time.Millisecond:
		return config, fmt.Errorf("--redis-timeout %v: write a millisecond or more", f.redisTimeout)
	case config.PathPrefix != "" && !strings.HasPrefix(config.PathPrefix, "/"):
		return config, fmt.Errorf("--path-prefix %s: write a path, such as /auth", config.PathPrefix)
	}
	config.Trust = serve.Private
	if c.Flags().Changed("trust") {
		config.Trust = nil
	}
	for _, text := range f.trust {
		p, err := netip.ParsePrefix(text)
		if addr, single := netip.ParseAddr(text); single == nil && addr.Zone() == "" {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return config, fmt.Errorf("--trust %s: write a network such as 10.0.0.0/8, or an address", text)
		}
		config.Trust = append(config.Trust, p)
	}
	password, err := secret("--redis-password-file", f.redisFile, "STINT_REDIS_PASSWORD")
	if err != nil {
		return config, err
	}
	if f.redis != "" {
		if config.Redis, err = redisOptions(f.redis, string(password)); err != nil {
			return config, err
		}
		allow(config.Redis, f.redisTimeout)
		config.RedisOptions = []redisstore.Option{redisstore.WithTimeout(f.redisTimeout)}
	} else if f.redisFile != "" {
		return config, errors.New("--redis-password-file without --redis: leave it out")
	} else if c.Flags().Changed("redis-timeout") {
		return config, errors.New("--redis-timeout without --redis: leave it out")
	}
	if config.Secret, err = secret("--secret-file", f.secretFile, "STINT_SECRET"); err != nil {
		return config, err
	}
	switch {
	case config.APIAddr == "":
	case config.Secret == nil:
		return config, errors.New("--listen-api without a secret for tokens: give --secret-file, or STINT_SECRET in the environment, the same on all replicas")
	case len(config.Secret) < keytext.MinSecret:
		return config, fmt.Errorf("the secret for tokens has %d bytes: write at least %d, at random", len(config.Secret),
			keytext.MinSecret)
	}
	token, err := secret("--token-file", f.tokenFile, "STINT_TOKEN")
	config.Token = string(token)
	return config, err
}

// redisLog has go-redis log as the server does. What concerns decisions, the limiter logs itself.
type redisLog struct{ logger *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.logger.DebugContext(ctx, fmt.Sprintf(format, v...))
}

// redisOptions returns the options of a Redis client.
func redisOptions(url, password string) (*redis.Options, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("--redis: write a URL such as redis://10.0.0.7:6379/0, or rediss:// for TLS") // the error may have the password
	}
	if options.Password != "" {
		return nil, errors.New("--redis has a password, which other users of the machine can read: give --redis-password-file, or STINT_REDIS_PASSWORD in the environment")
	}
	options.Password = password
	options.DialerRetries = 1
	options.ContextTimeoutEnabled = true
	return options, nil
}

// redisTimeout is the default of --redis-timeout.
const redisTimeout = 100 * time.Millisecond

// allow raises the client's own timeouts, which would end a call before the store's timeout. Those in the URL stay.
func allow(options *redis.Options, timeout time.Duration) {
	const own = 5 * time.Second // go-redis's defaults
	for _, t := range []*time.Duration{&options.DialTimeout, &options.ReadTimeout, &options.WriteTimeout,
		&options.PoolTimeout} {
		if *t == 0 && timeout > own {
			*t = timeout
		}
	}
}

// secret returns a secret from a file or the environment, or nil.
func secret(flag, file, variable string) ([]byte, error) {
	if file == "" {
		if value := os.Getenv(variable); value != "" {
			return []byte(value), nil
		}
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if data = bytes.TrimRight(data, "\r\n"); len(data) == 0 {
		return nil, fmt.Errorf("%s: %s is empty: write the secret into it", flag, file)
	}
	return data, nil
}

// reportServed writes the mistakes of a policy file in the words of stint serve.
func reportServed(c *cobra.Command, err error) error {
	found := policy.Errors(nil)
	if !errors.As(err, &found) {
		return err
	}
	for _, e := range found {
		text := e.Text
		if e.Unknown != "" {
			text = registered.ReplaceAllString(text, "") + "; stint serve has no functions of an application"
		}
		fmt.Fprintf(c.ErrOrStderr(), "%s:%d:%d: %s\n", escape(e.File), e.Line, e.Column, escape(text))
	}
	return errFailed
}

// registered is what package policy says about a name that isn't registered.
var registered = regexp.MustCompile(`; [a-z ]+ are registered with policy\.With\w+$`)
