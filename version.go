package stint

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// version is what a limiter does from one Update to the next: plans, a backend that decides the
// charges that are read by them, and a behavior. None of its fields changes. A call and its permit
// keep the version they began with, so a request sees one configuration from its plan to its fields,
// whatever is updated meanwhile. Only the limits of one that waits for slots are replaced by what an
// Update has made of them.
type version struct {
	behavior
	events   sender            // sends what happens
	registry *compile.Registry // of the limiter's family
	compiled *compile.Result
	plans    *read.Plans     // compiled
	backend  *decide.Backend // decides what is read by the plans
	bytes    *decide.Backend // decides the chunks of bytes of Bandwidths
	issuer   permit.Issuer   // of the version's permits
	memory   *memory.Store   // the backend's store, if it is one in memory; or nil
	view     mistakes.View   // of this version, for the checks for mistakes
	// warnTooCostly is called for a charge of a request that costs more than its limit ever lets pass.
	warnTooCostly func(*store.Charge)
	dryRuns       bool // some limit may be in a dry run
	shows         bool // some function of the application sees requests, apart from observers
}

// showsRequests reports whether some function of the application sees requests.
func (v *version) showsRequests() bool { return v.shows || v.events.observers() != nil }

// handles reports whether a handler of the limiter or of a route answers denials.
func (v *version) handles() bool { return v.behavior.handles() || v.plans.DenyHandlers }

// denyHandlerOf returns the handler that answers a request which a limit denies, or nil.
func (v *version) denyHandlerOf(r *http.Request) http.Handler {
	if v.plans.DenyHandlers {
		if h := v.plans.Find(r).DenyHandler; h != nil {
			return h
		}
	}
	return v.denyHandler
}

// plan returns the plan of a request.
func (v *version) plan(r *http.Request) *read.Plan {
	if v.plans.Router == nil {
		return v.plans.Base
	}
	return v.routedPlan(r)
}

// routedPlan returns the plan of a request's route, and records that a request has matched it.
func (v *version) routedPlan(r *http.Request) *read.Plan {
	plan := v.plans.Find(r)
	plan.MarkMatched()
	return plan
}

// entriesOf returns the entries of the version's plans, and those that sources have for a key. asked
// reports whether there are sources.
func (v *version) entriesOf(ctx context.Context, key string) (declared, sourced []*read.Entry, asked bool, err error) {
	declared = slices.Collect(v.plans.Entries)
	var q read.Reading
	q.SetPlans(v.plans)
	all, asked, err := q.OfKey(ctx, key, declared, true)
	v.sendSourceAnswers(q.Failures)
	if err != nil {
		return nil, nil, asked, err
	}
	return declared, all[len(declared):], asked, nil
}

// sendSourceAnswers notifies the observers of sources that answer again, when limits are only looked at: a
// source says so once.
func (v *version) sendSourceAnswers(failures []read.Failure) {
	for _, w := range failures {
		if w.Kind == read.SourceFailed && w.Err == nil {
			e := subject{}.event(EventSourceFailed, nil)
			v.events.send(v.events.observers(), &e)
		}
	}
}

// limitText describes a limit in the log.
type limitText struct {
	name string // "limit api", "limit login of POST /login"
	// parts are its numbers, its key, and its other settings in words. A change is about one of them.
	parts [7]string
}

// usualParts are left out where a single limit is described.
var usualParts = [len(limitText{}.parts)]string{2: "enforced", 3: "waits for nothing", 4: "open if the store fails",
	5: "shown in header fields", 6: "not announced before it is used up"}

// limitTexts describes the version's limits, each once, at the route that declares it.
func (v *version) limitTexts() (all []limitText) {
	for _, p := range v.plans.All() {
		for _, e := range p.Declared {
			all = append(all, textOf(p, e))
		}
	}
	return all
}

// textOf describes a limit that p declares.
func textOf(p *read.Plan, e *read.Entry) limitText {
	t := limitText{name: "limit " + e.Name()}
	if p.Pattern != "" {
		t.name += " of " + p.Pattern
	}
	t.parts = usualParts
	t.parts[0], t.parts[1] = periodWords.Replace(compile.Text(e)), "by "+e.Key.Name
	if e.DryRun {
		t.parts[2] = "in a dry run"
	}
	if e.Wait.MaxWait > 0 {
		t.parts[3] = "waits up to " + e.Wait.MaxWait.String()
	}
	if e.Closed {
		t.parts[4] = "closed if the store fails"
	}
	if e.Hidden() {
		t.parts[5] = "hidden from header fields"
	}
	if e.Marks != nil {
		t.parts[6] = "announced at " + strings.Trim(fmt.Sprint(e.Marks), "[]") + " %"
	}
	return t
}

// periodWords replaces the usual periods of compile.Text by words.
var periodWords = strings.NewReplacer("per 1s", "per second", "per 1m0s", "per minute", "per 1h0m0s", "per hour",
	"per 24h0m0s", "per day")

func (t limitText) String() string { return t.name + ": " + t.settings() }

// settings returns the parts that aren't usual.
func (t limitText) settings() string {
	var unusual []string
	for i, part := range t.parts {
		if part != usualParts[i] {
			unusual = append(unusual, part)
		}
	}
	return strings.Join(unusual, ", ")
}

// changesBetween describes what one version has changed of the limits of another before it. It returns
// "" if they are the same.
func changesBetween(before, after *version) string {
	old := map[string]limitText{}
	for _, t := range before.limitTexts() {
		old[t.name] = t
	}
	var all []string
	kept := map[string]bool{}
	for _, t := range after.limitTexts() {
		kept[t.name] = true
		was, found := old[t.name]
		if !found {
			all = append(all, t.name+" added: "+t.settings())
			continue
		}
		for i, part := range t.parts {
			if part != was.parts[i] {
				all = append(all, t.name+": "+part+", was "+withoutAlgorithm(was.parts[i], part))
			}
		}
	}
	for _, t := range before.limitTexts() {
		if !kept[t.name] {
			all = append(all, t.name+" removed")
		}
	}
	return joinListed(all)
}

// withoutAlgorithm returns the text of a limit's numbers without its algorithm, if that of other is the
// same.
func withoutAlgorithm(numbers, other string) string {
	algorithm, rest, _ := strings.Cut(numbers, ": ")
	if same, _, found := strings.Cut(other, ": "); found && same == algorithm {
		return rest
	}
	return numbers
}
