package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// policyFile is a policy file, and what is decided by it.
type policyFile struct {
	path    string
	read    []policy.Option
	limiter *stint.Limiter
	domain  *domain        // nil for forward auth
	base    *stint.Limiter // of descriptors without a path; or nil, or limiter
	log     *occasionally
}

// policyFiles holds the policy files of a server.
type policyFiles struct {
	plain     []*policyFile // without a domain
	requests  *policyFile   // of them, that of forward auth; or nil
	described []*policyFile

	byName     map[string]*stint.Limiter // of plain
	byDomain   map[string]*domain        // of described
	configured *configured               // or nil
}

func (fs *policyFiles) all() []*policyFile {
	return append(slices.Clone(fs.described), fs.plain...)
}

// domains returns the domains of the files by name.
func (fs *policyFiles) domains() map[string]*domain {
	if fs.configured != nil {
		return *fs.configured.current.Load()
	}
	return fs.byDomain
}

// open opens the store and the policy files.
func (s *Server) open() (*policyFiles, error) {
	paths, err := filesIn(s.config.Policies)
	if err != nil {
		return nil, err
	}
	var counts store.Store = memstore.New()
	if s.config.Redis != nil {
		rdb := redis.NewClient(s.config.Redis)
		shared := redisstore.New(rdb, s.config.RedisOptions...)
		s.closers = append(s.closers, func() { _ = rdb.Close() }, func() { _ = shared.Close() })
		counts = shared
	} else {
		s.config.Logger.Warn("counts are this process's own, and end with it: give --redis to share them with other replicas")
	}
	fs := &policyFiles{byDomain: map[string]*domain{}, byName: map[string]*stint.Limiter{}}
	if s.config.RateLimitConfigs != nil {
		fs.configured = &configured{paths: s.config.RateLimitConfigs, counts: counts, logger: s.config.Logger, log: s.log}
		fs.configured.last = fs.configured.read()
		err := fs.configured.load()
		s.limiters = fs.configured.limiters()
		return fs, err
	}
	var errs policy.Errors
	for _, path := range paths {
		f, err := s.openFile(path, counts)
		if found := policy.Errors(nil); errors.As(err, &found) {
			errs = append(errs, found...)
			continue
		} else if err != nil {
			return nil, err
		}
		if err := fs.add(f, s.config); err != nil {
			return nil, err
		}
	}
	switch {
	case errs != nil:
		return nil, errs
	case s.config.Proxy != "" && fs.requests == nil:
		return nil, errors.New("--forward-auth needs a file without a domain")
	case s.config.APIAddr != "" && fs.plain == nil:
		return nil, errors.New("--listen-api needs a file without a domain")
	case s.config.RLSAddr != "" && fs.described == nil:
		return nil, errors.New("--rls needs a file with a domain: write the domain of Envoy's filter at its top, such as domain: shop")
	}
	for _, f := range fs.all() {
		s.limiters = append(s.limiters, f.limiter)
		if f.base != nil && f.base != f.limiter {
			s.limiters = append(s.limiters, f.base)
		}
	}
	return fs, nil
}

// add adds a file, unless nothing would be decided by it.
func (fs *policyFiles) add(f *policyFile, c Config) error {
	switch {
	case f.domain == nil && c.Proxy == "" && c.APIAddr == "":
		return fmt.Errorf("%s has no domain, and nothing asks for its limits: write the domain of Envoy's filter at its top, or give --forward-auth or --listen-api", f.path)
	case f.domain == nil:
		return fs.addPlain(f, c)
	case c.RLSAddr == "":
		return fmt.Errorf("%s has a domain, which Envoy's rate limit service asks for: give --rls", f.path)
	}
	for _, other := range fs.described {
		if other.domain.name == f.domain.name {
			return fmt.Errorf("%s and %s have the same domain: write their limits into one file", other.path, f.path)
		}
	}
	fs.described = append(fs.described, f)
	fs.byDomain[f.domain.name] = f.domain
	return nil
}

// addPlain adds a file without a domain.
func (fs *policyFiles) addPlain(f *policyFile, c Config) error {
	name := nameOf(f.path)
	switch {
	case c.Proxy != "" && fs.requests != nil:
		return fmt.Errorf("%s and %s have no domain: write their limits into one file", fs.requests.path, f.path)
	case fs.byName[name] != nil:
		return fmt.Errorf("two files have the name %s, by which clients ask for their limits: rename one", name)
	case c.APIAddr != "" && len(plansOf(f.limiter).Base.Entries) == 0:
		return fmt.Errorf("%s has limits in routes only, and clients of --listen-api have no requests: write limits at the top", f.path)
	}
	if c.Proxy != "" {
		fs.requests = f
	}
	fs.plain, fs.byName[name] = append(fs.plain, f), f.limiter
	return nil
}

// nameOf returns the name by which clients ask for a file's limits.
func nameOf(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// openFile reads a policy file and makes its limiters.
func (s *Server) openFile(path string, counts store.Store) (*policyFile, error) {
	f := &policyFile{path: path, log: s.log}
	// The domain, which a change of the file can't change, says how the file is read.
	probe, err := policy.Load(path, s.reading(counts, path, "")...)
	if err != nil {
		return nil, err
	}
	f.read = s.reading(counts, path, probe.Domain())
	p, err := policy.Load(path, f.read...)
	if err != nil {
		return nil, err
	}
	if f.limiter, err = stint.New(p.Options()...); err != nil || p.Domain() == "" {
		return f, err
	}
	if f.base, err = baseOf(p, f.limiter, nil); err != nil {
		return nil, err
	}
	f.domain = &domain{name: p.Domain(), log: s.log}
	f.domain.rules.Store(newRules(p, f.limiter, f.base))
	return f, nil
}

// reading returns the options that a file is read with.
func (s *Server) reading(counts store.Store, path, domain string) []policy.Option {
	options := []stint.Option{stint.WithLogger(s.config.Logger), stint.WithStore(counts)}
	if domain != "" {
		options = append(options, hitsCost)
		if algorithm.ValidName(domain) {
			options = append(options, stint.WithLimiterName(domain))
		}
	}
	if name := nameOf(path); domain == "" && s.config.APIAddr != "" && algorithm.ValidName(name) {
		options = append(options, stint.WithLimiterName(name))
	}
	read := []policy.Option{policy.WithServer(), Descriptors, policy.WithOptions(options...)}
	if s.config.APIAddr != "" && s.config.Proxy == "" {
		read = append(read, policy.WithGivenKeys())
	}
	if s.config.Secret != nil {
		read = append(read, policy.WithSecret(s.config.Secret))
	}
	return read
}

// baseOf returns the limiter of descriptors without a path. Without routes in the file, that is all. If the file has
// routes only, it is nil. If base exists already, it is updated.
func baseOf(p *policy.Policy, all, base *stint.Limiter) (*stint.Limiter, error) {
	switch options := p.WithoutRoutes(); {
	case options == nil:
		return nil, nil
	case len(all.Describe().Rules) > 0 && !routed(all):
		return all, nil
	case base == nil || base == all:
		return stint.New(options...)
	default:
		return base, base.Update(options...)
	}
}

// routed reports whether a limiter has routes.
func routed(l *stint.Limiter) bool { return plansOf(l).Router != nil }

// follow keeps the limits up to date with the file until ctx ends. done is closed then.
func (f *policyFile) follow(ctx context.Context) (done <-chan struct{}, err error) {
	read := f.read
	if f.domain != nil {
		read = append(slices.Clone(read), policy.WithObserver(f.changed))
	}
	w, err := policy.Watch(ctx, f.path, f.limiter, read...)
	if err != nil {
		return nil, err
	}
	return w.Done(), nil
}

// changed puts a new version of the file in force for descriptors.
func (f *policyFile) changed(c policy.Change) {
	if c.Policy == nil {
		return
	}
	if c.Policy.Domain() != f.domain.name {
		f.log.warn("the domain of a file has changed, which takes effect when the server starts again", "file", f.path)
	}
	base, err := baseOf(c.Policy, f.limiter, f.base)
	if err != nil { // the same options without routes: they are as good as those in force
		f.log.warn("a policy isn't in force for descriptors without a path", "file", f.path, "error", err)
		return
	}
	if base != nil && base != f.limiter {
		f.base = base
	}
	f.domain.rules.Store(newRules(c.Policy, f.limiter, base))
}

// filesIn returns the files that paths name, and those in the folders that they name.
func filesIn(paths []string) (all []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			all = append(all, path)
			continue
		}
		found := 0
		for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
			in, err := filepath.Glob(filepath.Join(path, pattern))
			if err != nil {
				return nil, err
			}
			all, found = append(all, in...), found+len(in)
		}
		if found == 0 {
			return nil, fmt.Errorf("%s has no .yaml, .yml or .json", path)
		}
	}
	for _, path := range all {
		// Reading a pipe, a socket or a device might never end. A directory, or a file that has gone, is an error anyway.
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
			return nil, fmt.Errorf("%s isn't a regular file", path)
		}
	}
	return all, nil
}
