package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// operation is a command on the counts of a running system: those of a policy's limiter on its Redis.
type operation struct {
	policy, redis, passwordFile string
	limits                      []string
	yes                         bool
	funcs                       functions
}

const operationHelp = `

KEY is a key as the live page, events and stint explain show it. A limit with another kind of key shows no use:
an address has used nothing of a limit by API key. A limit that all requests share has no key. It is shown, but
can't be reset or banned. An adaptive-concurrency isn't on Redis: each process of the system counts by itself.

The limits are those of --policy: of the top and of the routes, and of a plan with --plan. The counts are
those on --redis. Redis's password comes from --redis-password-file or STINT_REDIS_PASSWORD.`

func (o *operation) flags(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&o.policy, "policy", "", "the policy `FILE` that has the limits")
	flags.StringVar(&o.redis, "redis", "",
		"the `URL` of the Redis that keeps the counts, such as redis://10.0.0.7:6379/0, without a password")
	flags.StringVar(&o.passwordFile, "redis-password-file", "", "the `FILE` that has Redis's password")
	for _, name := range []string{"policy", "redis"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // no such flag
		}
	}
	o.funcs.flag(c)
	o.funcs.planFlag(c)
}

// changes adds the flags of a command that changes counts.
func (o *operation) changes(c *cobra.Command) {
	c.Flags().StringArrayVar(&o.limits, "limit", nil, "the `NAME` of a limit, instead of all; may be repeated")
	c.Flags().BoolVar(&o.yes, "yes", false, "don't ask")
}

// on calls f with the limiter.
func (o *operation) on(c *cobra.Command, f func(*stint.Limiter) error) error {
	password, err := secret("--redis-password-file", o.passwordFile, "STINT_REDIS_PASSWORD")
	if err != nil {
		return err
	}
	options, err := redisOptions(o.redis, string(password))
	if err != nil {
		return err
	}
	redis.SetLogger(redisLog{slog.New(slog.DiscardHandler)})
	rdb := redis.NewClient(options)
	defer func() { _ = rdb.Close() }()
	shared := redisstore.New(rdb, redisstore.WithTimeout(5*time.Second))
	defer func() { _ = shared.Close() }()
	read, err := o.funcs.options()
	if err != nil {
		return err
	}
	p, err := policy.Load(o.policy, append(read, policy.WithOptions(stint.WithStore(shared)))...)
	if err != nil {
		return reportMistakes(c, err)
	}
	l, err := stint.New(p.Options()...)
	if err != nil {
		return err
	}
	if err := l.CheckStore(c.Context()); err != nil {
		return err
	}
	return f(l)
}

// reportMistakes writes the mistakes of a policy file.
func reportMistakes(c *cobra.Command, err error) error {
	found := policy.Errors(nil)
	if !errors.As(err, &found) {
		return err
	}
	for _, e := range found {
		fmt.Fprintf(c.ErrOrStderr(), "%s:%d:%d: %s\n", escape(e.File), e.Line, e.Column, escape(withHint(e)))
	}
	return errFailed
}

// usage writes how a key stands with the limits.
func usage(c *cobra.Command, l *stint.Limiter, key string) error {
	d, err := l.PeekAll(c.Context(), key)
	if err != nil {
		return err
	}
	rules := map[string]stint.Rule{}
	for _, r := range l.Describe().Rules {
		rules[r.Limit] = r
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "limit\tused\tleft\tof\tall again in\t")
	for _, s := range d.Limits {
		if rules[s.Name].Local {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\tin each process, not on Redis\n", s.Name)
			continue
		}
		var notes []string
		if rules[s.Name].Shared {
			notes = append(notes, "of all keys together")
		}
		if s.DryRun {
			notes = append(notes, "a dry run")
		}
		if !s.Allowed {
			notes = append(notes, "denies for "+rounded(s.RetryAfter))
		}
		again := "-"
		if s.ResetAfter > 0 {
			again = rounded(s.ResetAfter)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\n", s.Name, max(s.Capacity-s.Remaining, s.InFlight), s.Remaining,
			s.Capacity, again,
			strings.Join(notes, ", "))
	}
	return w.Flush()
}

// rounded writes a duration, to the second if it is longer.
func rounded(d time.Duration) string {
	if d > time.Second {
		return d.Round(time.Second).String()
	}
	return d.String()
}

// action changes a key, and says what it has done.
type action func(context.Context, *stint.Limiter) (string, error)

// change does what a command does to a key, unless its caller says no. It writes how the key stands before and after.
func (o *operation) change(c *cobra.Command, key, question string, do action) error {
	return o.on(c, func(l *stint.Limiter) error {
		out := c.OutOrStdout()
		fmt.Fprintln(out, "before:")
		if err := usage(c, l, key); err != nil {
			return err
		}
		if !o.yes {
			fmt.Fprintf(out, "%s [y/N] ", question)
			answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
			if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
				return errors.New("nothing has changed: answer y, or give --yes")
			}
		}
		said, err := do(c.Context(), l)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\nafter:\n", said)
		return usage(c, l, key)
	})
}

func usageCommand() *cobra.Command {
	var o operation
	c := &cobra.Command{
		Use:     "usage KEY",
		Short:   "Show what a key has used of the limits of a running system, and what is left",
		Long:    "Usage writes what a key has used and left of each limit, as the counts on Redis are now. It charges nothing." + operationHelp,
		Example: "  stint usage --policy policy.yaml --redis redis://10.0.0.7:6379 tenant-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.on(c, func(l *stint.Limiter) error { return usage(c, l, args[0]) })
		},
	}
	o.flags(c)
	return c
}

func resetCommand() *cobra.Command {
	var o operation
	c := &cobra.Command{
		Use:   "reset KEY",
		Short: "Reset a key's counts in a running system, and end its bans",
		Long: "Reset makes the limits forget a key: used units are available again, slots no longer count, and bans end.\n" +
			"It writes what the key has used before and after, and asks first unless --yes is given." + operationHelp,
		Example: "  stint reset --policy policy.yaml --redis redis://10.0.0.7:6379 --limit daily tenant-7",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			question := "reset the key " + escape(args[0]) + "?"
			return o.change(c, args[0], question, func(ctx context.Context, l *stint.Limiter) (string, error) {
				found, err := l.Reset(ctx, args[0], o.limits...)
				if !found {
					return "there was nothing to reset: no limit has counted anything for this key", err
				}
				return "reset", err
			})
		},
	}
	o.flags(c)
	o.changes(c)
	return c
}

func banCommand() *cobra.Command {
	var o operation
	c := &cobra.Command{
		Use:   "ban KEY DURATION",
		Short: "Ban a key in a running system",
		Long: "Ban denies a key for DURATION, from 1ms to 8760h, in the bans of the policy. A ban that ends later stays. Reset\n" +
			"ends bans. Ban writes how the key stands before and after, and asks first unless --yes is given." + operationHelp,
		Example: "  stint ban --policy policy.yaml --redis redis://10.0.0.7:6379 192.0.2.7 1h",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := time.ParseDuration(args[1])
			if err != nil || store.CheckBan(d) != nil {
				return fmt.Errorf("%.80q: write how long, from 1ms to 8760h, such as 30m or 24h", args[1])
			}
			return o.change(c, args[0], fmt.Sprintf("ban the key %s for %s?", escape(args[0]), args[1]),
				func(ctx context.Context, l *stint.Limiter) (string, error) {
					return "banned", l.Ban(ctx, args[0], d, o.limits...)
				})
		},
	}
	o.flags(c)
	o.changes(c)
	return c
}
