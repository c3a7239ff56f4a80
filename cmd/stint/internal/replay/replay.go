// Package replay reports what a limiter would have done with the requests of a log: which keys it
// would have denied, when, and by which limit. It replays the log through the same code that
// decides requests, in the log's time, without sleeping.
//
//	log, err := replay.Read("access.log", file)
//	report, err := replay.Run(newLimiter, log)
//	fmt.Println(report.Strictest().Denied)
//
// Suggest works in the other direction: from a log, it computes numbers that admit most of the
// log's clients. Command stint prints the results of both, for policy files.
//
// # What is judged
//
// Rates, quotas and bans decide as in production. A request that would have waited for its turn
// counts as waiting, and ends that much later. Slots of a Concurrency are held until the logged
// end. A WithSettle that depends on the status uses the logged status.
//
// Missing data is never guessed. If a limit's key, cost or settled cost depends on data that
// isn't in the log, the limit isn't judged, and the other limits are decided without it.
// Report.NotJudged has the reason. The same applies to limits that depend on the server's
// behavior: a Concurrency with a queue, an AdaptiveConcurrency and a Bandwidth.
//
// A denied client may leave or retry at once. The log doesn't show which, so its requests are
// replayed unchanged.
//
// # Time
//
// A replay has its own clock and stores, so it may run in a program that serves requests. If
// the times of a log are whole seconds, it is replayed in two scenarios: the requests of a
// second come all at once, or evenly spread over it. The results of the two aren't bounds. A
// log with milliseconds needs only one replay.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/store/memstore"
)

// Option is an option of Run and of Suggest.
type Option interface {
	RunOption
	SuggestOption
}

// RunOption is an option of Run.
type RunOption interface{ ofRun(*config) }

// SuggestOption is an option of Suggest.
type SuggestOption interface{ ofSuggest(*config) }

// option is an option of both.
type option func(*config)

func (o option) ofRun(c *config)     { o(c) }
func (o option) ofSuggest(c *config) { o(c) }

// runOption is an option of Run alone, suggestOption one of Suggest.
type (
	runOption     func(*config)
	suggestOption func(*config)
)

func (o runOption) ofRun(c *config)         { o(c) }
func (o suggestOption) ofSuggest(c *config) { o(c) }

type config struct {
	against       func() (*stint.Limiter, error)
	predicates    []keys.Reads // of the limiter
	before        []keys.Reads // of against
	window        time.Duration
	windowSet     bool // the window was given
	progressEvery int64
	onProgress    func(Progress)
	hash          []byte
	top           int64
	keys          int64
	headroom      float64
	horizon       time.Duration
	errs          []error
}

func newConfig() *config {
	return &config{window: 5 * time.Minute, progressEvery: 100_000, top: 20, keys: memstore.DefaultMaxKeys, headroom: 1.25,
		horizon: time.Minute}
}

// WithAgainst also replays the log through another limiter, usually the current one, and
// reports the keys whose requests change from allowed to denied, and back.
// predicates are as in WithPredicates.
func WithAgainst(newLimiter func() (*stint.Limiter, error), predicates ...keys.Reads) RunOption {
	return runOption(func(c *config) { c.against, c.before = newLimiter, predicates })
}

// WithHeadroom sets by how much the rates and bursts that Suggest proposes are larger than those
// that the log needs: 1.5 is half as much again. The default is 1.25; it is at least 1.
func WithHeadroom(factor float64) SuggestOption {
	return suggestOption(func(c *config) {
		if c.headroom = factor; !(factor >= 1 && factor <= 1000) {
			c.errs = append(c.errs, fmt.Errorf("WithHeadroom(%v): write a factor from 1 to 1000", factor))
		}
	})
}

// WithHorizon sets for how long a key may do little. Many pairs of a rate and a burst leave the
// same share of keys untouched: of the round rates per second, minute or hour with which a key gets at most a
// quarter more through within this time than with any other, Suggest proposes one with the shortest
// unit, and of these the one with which a key gets least. The log must be ten times as long. The
// default is a minute.
func WithHorizon(d time.Duration) SuggestOption {
	return suggestOption(func(c *config) {
		if c.horizon = d; d < time.Second || d > 366*24*time.Hour {
			c.errs = append(c.errs, fmt.Errorf("WithHorizon(%v): write a duration from 1s to a year", d))
		}
	})
}

// UnknownCost is what a function of WithSettle returns that stands for one of the application. A limit with
// it isn't judged.
const UnknownCost = math.MinInt64

// WithPredicates says what the limiter's WithSkips and then its WithBlocks look at, each in order. Those that
// aren't listed are functions of the application, so no request is judged.
func WithPredicates(reads ...keys.Reads) RunOption {
	return runOption(func(c *config) { c.predicates = reads })
}

// WithWindow sets how far a log may be out of order, and how long a request may take. A log
// that goes back by more is an error. The requests of the window are held in memory and sorted.
// Requests that took longer, or belong before requests already replayed, are replayed as early
// as still possible, and Report.Log.Moved counts them. The default is five minutes; if a log
// has more than 16,384 requests in five minutes, at least 30 seconds are held.
func WithWindow(d time.Duration) Option {
	return option(func(c *config) {
		c.window, c.windowSet = d, true
		if valid, write := optionerror.CheckDuration(d, time.Millisecond, 0, "use 1ms or more"); !valid {
			c.errs = append(c.errs, fmt.Errorf("WithWindow(%v): %s", d, write))
		}
	})
}

// WithProgress calls f about every 100,000 requests.
func WithProgress(f func(Progress)) Option { return option(func(c *config) { c.onProgress = f }) }

// Progress is the progress of a run.
type Progress struct {
	Requests int64
	// At is the log's time.
	At time.Time
}

// WithHashedKeys replaces keys in the report by hashes made with a secret, and leaves out
// broken lines, for reports that are shared. Anyone who has the secret can find out whether a
// key is in a report.
func WithHashedKeys(secret []byte) Option { return option(func(c *config) { c.hash = secret }) }

// WithTop sets the number of keys that a report lists. The default is 20.
func WithTop(n int64) Option {
	return option(func(c *config) {
		if c.top = n; n < 0 {
			c.errs = append(c.errs, fmt.Errorf("WithTop(%d): write 0 or more", n))
		}
	})
}

// WithMaxKeys sets the largest number of keys that a run holds at once; each pair of a limit
// and a key counts as one key. Beyond that, new keys share counts, and Report.Log.Overflow is
// above 0. For Suggest, n is the total number of keys; more are an error. The default is
// memstore.DefaultMaxKeys.
func WithMaxKeys(n int64) Option {
	return option(func(c *config) {
		if c.keys = n; n < 1 || n > math.MaxInt32 {
			c.errs = append(c.errs, fmt.Errorf("WithMaxKeys(%d): write a number from 1 to 2147483647", n))
		}
	})
}

// ErrEmpty is the error of a log without requests.
var ErrEmpty = errors.New("the log has no requests")

// Run replays a log through a limiter that newLimiter makes. The limiter's observers, handlers
// and store are not used: requests are only decided, in memory. Run returns the error of
// newLimiter or of the log, an error if an option is wrong, and ErrEmpty for a log without
// requests. Run may be called while limiters serve requests.
func Run(newLimiter func() (*stint.Limiter, error), log Log, opts ...RunOption) (*Report, error) {
	c := newConfig()
	for _, o := range opts {
		o.ofRun(c)
	}
	r, lim, first, err := c.begin("Run", newLimiter, log)
	if err != nil {
		return nil, err
	}
	var against *stint.Limiter
	if c.against != nil {
		if against, err = c.against(); err != nil {
			return nil, err
		}
	}
	var all []*scenario
	for _, name := range scenarioNames(r.says) {
		s := newScenario(name, lim, against, c, r.says, first.at)
		all = append(all, s)
		r.consumers = append(r.consumers, s)
	}
	judges := []*judge{all[0].judge}
	if against != nil {
		judges = append(judges, all[0].against)
	}
	r.builder = newBuilder(r.says, judges...)
	if err := errors.Join(r.run(first), checkFieldNames(log), r.order.checkUnit(r.says.assumedSeconds)); err != nil {
		return nil, err
	}
	return r.report(all), nil
}

// begin checks the arguments of a replay, and reads the first request.
func (c *config) begin(name string, newLimiter func() (*stint.Limiter, error),
	log Log) (*replay, *stint.Limiter, *arrival, error) {
	if err := errors.Join(c.errs...); err != nil {
		return nil, nil, nil, err
	}
	if newLimiter == nil || log == nil {
		return nil, nil, nil, fmt.Errorf("%s without a limiter or a log", name)
	}
	lim, err := newLimiter()
	if err != nil {
		return nil, nil, nil, err
	}
	says := log.Says()
	o := &order{log: log, window: c.window, windowSet: c.windowSet, took: says.Took}
	first, err := o.next()
	if err == io.EOF {
		err = cmp.Or(checkFieldNames(log), errNoRequests(log))
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return &replay{config: c, log: log, says: says, order: o}, lim, first, nil
}

// errNoRequests returns the error of a log without requests.
func errNoRequests(log Log) error {
	b := brokenOf(log)
	switch {
	case b.Lines == 0:
		return ErrEmpty
	case len(b.First) == 0:
		return fmt.Errorf("%w: its %d lines are other messages", ErrEmpty, b.Lines)
	}
	return fmt.Errorf("%w: none of its %d lines could be read, such as %s", ErrEmpty, b.Lines, b.First[0])
}

// The names of scenarios.
const (
	AsLogged = "as logged"
	AtOnce   = "all at once"
	Evenly   = "evenly spread"
)

// scenarioNames returns the scenarios of a log.
func scenarioNames(says Says) []string {
	if says.Resolution >= time.Second {
		return []string{AtOnce, Evenly}
	}
	return []string{AsLogged}
}

// replay is one run.
type replay struct {
	*config
	log       Log
	says      Says
	order     *order
	consumers []consumer
	builder   *builder
}

// consumer decides the log's requests in one scenario. r is nil for a request that isn't
// judged, and why is the reason.
type consumer interface {
	decide(at time.Time, is *Request, r *http.Request, why string) error
}

func (r *replay) run(a *arrival) error {
	if len(r.consumers) == 2 {
		return r.runSeconds(a)
	}
	for n := int64(1); ; n++ {
		request, why := r.builder.build(&a.Request)
		err := r.consumers[0].decide(a.at, &a.Request, request, why)
		if err != nil {
			return err
		}
		r.progress(n, a.at)
		r.order.free = append(r.order.free, a)
		if a, err = r.order.next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// runSeconds replays a log with whole seconds, a second after the other.
func (r *replay) runSeconds(a *arrival) error {
	var batch []*arrival
	n := int64(0)
	for a != nil {
		second := a.at.Truncate(time.Second)
		batch = batch[:0]
		var err error
		for a != nil && a.at.Sub(second) < time.Second {
			batch = append(batch, a)
			if a, err = r.order.next(); err == io.EOF {
				a = nil
			} else if err != nil {
				return err
			}
		}
		for i, b := range batch {
			request, why := r.builder.build(&b.Request)
			spread := second.Add(time.Second * time.Duration(i) / time.Duration(len(batch)))
			if err := errors.Join(r.consumers[0].decide(second, &b.Request, request, why),
				r.consumers[1].decide(spread, &b.Request, request, why)); err != nil {
				return err
			}
			n++
			r.progress(n, b.at)
		}
		r.order.free = append(r.order.free, batch...)
	}
	return nil
}

func (r *replay) progress(n int64, at time.Time) {
	if r.onProgress != nil && n%r.progressEvery == 0 {
		r.onProgress(Progress{n, at})
	}
}
