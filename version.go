package stint

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// version is what a limiter does from one Update to the next: plans, a backend that decides what
// is read by them, and a conduct. It is data, and none of its fields changes. A call and its permit
// keep the version they began with, so a request sees one configuration from its plan to its fields,
// whatever is updated meanwhile. Only the limits of one that waits for slots are replaced by what an
// Update has made of them.
type version struct {
	conduct
	events   sender            // sends what happens
	registry *compile.Registry // of the limiter's family
	compiled *compile.Result
	plans    *read.Plans     // compiled
	backend  *decide.Backend // decides what is read by the plans
	issuer   permit.Issuer   // of the version's permits
	memory   *memstore.Store // the backend's store, if it is one in memory; or nil
	view     mistakes.View   // of this version, for the checks for mistakes
	// tooCostly is called for a charge of a request that costs more than its limit ever lets pass.
	tooCostly func(*store.Charge)
	dryRuns   bool // some limit may be in a dry run
	shows     bool // some function of the application sees requests, observers aside: see showsRequests
}

// showsRequests reports whether some function of the application sees requests.
func (v *version) showsRequests() bool { return v.shows || v.events.observers() != nil }

// plan returns the plan of a request.
func (v *version) plan(r *http.Request) *read.Plan {
	if v.plans.Router == nil {
		return v.plans.Base
	}
	return v.route(r)
}

// route returns the plan of a request's route.
func (v *version) route(r *http.Request) *read.Plan {
	plan := v.plans.Find(r)
	plan.MarkMatched()
	return plan
}

// entriesOf returns the version's entries, and those that sources have for a key; known reports whether
// there are sources.
func (v *version) entriesOf(ctx context.Context, key string) (own, sourced []*read.Entry, known bool, err error) {
	own = slices.Collect(v.plans.Entries)
	var q read.Reading
	q.SetPlans(v.plans)
	all, known, err := q.OfKey(ctx, key, own, true)
	if err != nil {
		return nil, nil, known, err
	}
	return own, all[len(own):], known, nil
}

// listed is a limit as lines say it.
type listed struct {
	what string // "limit api", "limit login of POST /login"
	// says has what a change may be about, each in words.
	says [6]string
}

// usually are the words that a line about a single limit leaves out.
var usually = [len(listed{}.says)]string{2: "enforced", 3: "waits for nothing", 4: "open if the store fails", 5: "shown in header fields"}

// inventory lists the version's limits, each where it is written.
func (v *version) inventory() (all []listed) {
	for _, p := range v.plans.All() {
		for _, e := range p.Declared {
			all = append(all, list(p, e))
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
	if e.Wait.MaxWait > 0 {
		l.says[3] = "waits up to " + e.Wait.MaxWait.String()
	}
	if e.Closed {
		l.says[4] = "closed if the store fails"
	}
	if e.Hidden() {
		l.says[5] = "hidden from header fields"
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

// changesBetween says what one version has changed of the limits of another before it, or "" if
// it has changed none.
func changesBetween(before, after *version) string {
	return changes(before.inventory(), after.inventory())
}
