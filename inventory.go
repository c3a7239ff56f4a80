package stint

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// listed is a limit as lines say it.
type listed struct {
	what string // "limit api", "limit login of POST /login"
	// says has what a change may be about, each in words.
	says [5]string
}

// usually are the words that a line about a single limit leaves out.
var usually = [len(listed{}.says)]string{2: "enforced", 3: "waits for nothing", 4: "open if the store fails"}

// inventory lists the version's limits. One that a route inherits as it is stands there once.
func (v *version) inventory() (all []listed) {
	own := len(v.plans.Base.Entries)
	for _, p := range v.plans.All() {
		for _, e := range p.Entries {
			l := list(p, e)
			inherited := p.Pattern != "" && slices.ContainsFunc(all[:own], func(o listed) bool {
				return o.what == "limit "+e.Name() && o.says == l.says
			})
			if !inherited {
				all = append(all, l)
			}
		}
	}
	return all
}

func list(p *read.Plan, e *read.Entry) listed {
	l := listed{what: "limit " + e.Name()}
	if p.Pattern != "" {
		l.what += " of " + p.Pattern
	}
	l.says = usually
	l.says[0], l.says[1] = inWords.Replace(compile.Text(e)), "by "+e.Key.Name
	if e.DryRun {
		l.says[2] = "in a dry run"
	}
	if e.Terms.MaxWait > 0 {
		l.says[3] = "waits up to " + e.Terms.MaxWait.String()
	}
	if e.Closed {
		l.says[4] = "closed if the store fails"
	}
	return l
}

// inWords says the usual periods of compile.Text.
var inWords = strings.NewReplacer("per 1s", "per second", "per 1m0s", "per minute", "per 1h0m0s", "per hour", "per 24h0m0s", "per day")

// String has all that isn't usual.
func (l listed) String() string {
	says := slices.Clone(l.says[:])
	for i := range says {
		if says[i] == usually[i] {
			says[i] = ""
		}
	}
	return l.what + ": " + strings.Join(slices.DeleteFunc(says, func(s string) bool { return s == "" }), ", ")
}

// changes says what an Update has made of limits, or "" if it has changed none.
func changes(before, after []listed) string {
	var all []string
	in := func(list []listed, what string) int {
		return slices.IndexFunc(list, func(l listed) bool { return l.what == what })
	}
	for _, l := range after {
		i := in(before, l.what)
		if i < 0 {
			name, says, _ := strings.Cut(l.String(), ": ")
			all = append(all, name+" added: "+says)
			continue
		}
		for j, says := range l.says {
			if was := before[i].says[j]; says != was {
				all = append(all, l.what+": "+says+", was "+withoutKind(was, says))
			}
		}
	}
	for _, l := range before {
		if in(after, l.what) < 0 {
			all = append(all, l.what+" removed")
		}
	}
	return enumerate(all)
}

// withoutKind returns numbers without the algorithm that others have too.
func withoutKind(numbers, others string) string {
	kind, rest, _ := strings.Cut(numbers, ": ")
	if same, _, is := strings.Cut(others, ": "); is && same == kind {
		return rest
	}
	return numbers
}

// mostListed bounds the length of a line.
const mostListed = 50

func enumerate(all []string) string {
	if more := len(all) - mostListed; more > 0 {
		all = append(all[:mostListed:mostListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// introductions counts the limiters of the process that have made their first decision.
var introductions atomic.Int64

// mostIntroductions bounds how many of them have a line about it: a program may make one for each
// tenant or, by mistake, for each request.
const mostIntroductions = 100

// introduce writes what the members of a family have, without what they have from each other.
func introduce(members []*version) {
	if introductions.Add(1) > mostIntroductions {
		return
	}
	var limits, stores []string
	for _, v := range members {
		for _, l := range v.inventory() {
			if s := l.String(); !slices.Contains(limits, s) {
				limits = append(limits, s)
			}
		}
		if len(v.compiled.Funcs) > 0 && !slices.Contains(limits, "those of a WithLimitFunc") {
			limits = append(limits, "those of a WithLimitFunc")
		}
		if s := storeName(v.backend.Store); !slices.Contains(stores, s) {
			stores = append(stores, s)
		}
	}
	v := members[0]
	logAside(func() {
		v.reporter.log.Load().Write(context.Background(), logs.Introduced, func(bool) []slog.Attr {
			return v.attrs(slog.String("limits", enumerate(limits)), slog.String("store", strings.Join(stores, ", ")))
		})
	})
}

// logAside has a line written that isn't about anything wrong, on another goroutine: what calls a
// limiter may be the logger's own code, which holds its lock then. Otherwise the line is there
// when logAside returns, so that nobody has to wait for it.
func logAside(write func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		background.Do("logging", write)
	}()
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// storeName returns the name of a store's type, or what it is.
func storeName(s store.Store) string {
	if _, is := s.(*memstore.Store); is {
		return "memory of this process"
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}

// attrs returns a line's attributes, after the limiter's name if it has one.
func (v *version) attrs(all ...slog.Attr) []slog.Attr {
	if v.name != "" {
		all = append([]slog.Attr{slog.String("limiter", v.name)}, all...)
	}
	return all
}

// told has the version whose limits the log has.
type told struct{ atomic.Pointer[version] }

// changed returns what v has changed of the limits that the log has, or "" for nothing.
func (t *told) changed(v *version) string { return changes(t.Load().inventory(), v.inventory()) }

// dryRuns counts what dry runs would have denied, until it is logged.
type dryRuns struct {
	mu     sync.Mutex
	denied map[string]int64 // by limit; nil if none is counted
}

// count counts a denial by a limit. At the first of a minute, it has the line written when that
// is over.
func (d *dryRuns) count(v *version, limit string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.denied == nil {
		d.denied = map[string]int64{}
		time.AfterFunc(logs.Interval, func() {
			background.Do("logging", func() { d.write(v) })
		})
	}
	d.denied[limit]++
}

func (d *dryRuns) write(v *version) {
	d.mu.Lock()
	denied := d.denied
	d.denied = nil
	d.mu.Unlock()
	v.reporter.log.Load().Write(context.Background(), logs.DryRun, func(bool) []slog.Attr {
		var all []string
		for name, n := range denied {
			all = append(all, fmt.Sprintf("limit %s: %d", name, n))
		}
		slices.Sort(all)
		return v.attrs(slog.String("would_deny", enumerate(all)))
	})
}
