package replay

import (
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/compile"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/read"
)

// Explanation describes the limits, keys and costs that apply to a request.
type Explanation struct {
	// Exempt: a WithSkip exempts it. Blocked: a WithBlock denies it.
	Exempt, Blocked bool
	// Route is the pattern of the most specific WithRoute that the request matches; of an
	// ambiguous request, several patterns, separated by commas. It is "" if no route matches.
	Route string
	// Limits are those that it would be charged for, in order.
	Limits []Explained
	// Unknown lists what can't be known from the request alone, such as results of the
	// application's functions, which Explain doesn't call.
	Unknown []string
}

// Explained is one limit of a request.
type Explained struct {
	Limit string
	// Rule is the limit's algorithm and numbers: "TokenBucket: 10 per 1s, burst 20".
	Rule string
	// KeyFrom is the key's source: RemoteIP().
	KeyFrom string
	// Key is the key as a store sees it, and Cost what is charged.
	Key  string
	Cost int64
	// DryRun: it only reports.
	DryRun bool
	// Hidden: no header field shows it.
	Hidden bool
	// Left is the reason why the limit isn't charged, or the part that isn't known; otherwise
	// "".
	Left string
}

// Explain returns the limits, keys and costs that would apply to a request, and charges
// nothing. It calls no function of the application: what depends on one is reported as unknown. predicates
// are as in WithPredicates.
func Explain(l *stint.Limiter, r *http.Request, predicates ...keys.Reads) (x Explanation) {
	plans := plansOf(l)
	for i, p := range append(plans.Skip[:len(plans.Skip):len(plans.Skip)], plans.Block...) {
		if readsOf(predicates, i).Function {
			x.Unknown = append(x.Unknown, "whether a function of the application skips or blocks it")
			continue
		}
		if p(r) {
			if i < len(plans.Skip) {
				x.Exempt = true
			} else {
				x.Blocked = true
			}
			return x
		}
	}
	p := plans.Find(r)
	x.Route = p.Pattern
	for _, interpretation := range p.Interpretations() {
		for _, e := range interpretation.Entries {
			x.add(explain(e, r))
		}
	}
	if len(p.Funcs) > 0 {
		x.Unknown = append(x.Unknown, "which limits a WithLimitFunc adds")
	}
	return x
}

// add adds a limit. One that several interpretations of the request have for the same key is charged once.
func (x *Explanation) add(l Explained) {
	for i := range x.Limits {
		if o := &x.Limits[i]; o.Limit == l.Limit && o.Key == l.Key && o.Left == l.Left {
			o.Cost, o.DryRun = max(o.Cost, l.Cost), o.DryRun && l.DryRun
			return
		}
	}
	x.Limits = append(x.Limits, l)
}

func explain(e *read.Entry, r *http.Request) Explained {
	x := Explained{Limit: e.Name(), Rule: compile.Text(e), KeyFrom: e.Key.Name, Cost: 1, DryRun: e.DryRun,
		Hidden: e.Hidden()}
	switch {
	case e.Fixed > 0:
		x.Cost = e.Fixed
	case e.Cost != nil:
		x.Cost, x.Left = 0, "a function of the application computes its cost"
	}
	if why := whyNoKey(e.Key.Reads); why != "" {
		x.Left = why
		return x
	}
	if e.Skip != nil {
		x.Left = "a function of the application may skip it"
	}
	key, err := e.Key.Read(r)
	if err == nil {
		key, err = keytext.Encode(key)
	}
	switch {
	case err == nil:
		x.Key = key
	case err == keytext.ErrEmpty && e.SkipEmpty:
		x.Left = "its key is empty, so it doesn't apply"
	case err == keytext.ErrEmpty && e.DryRun:
		x.Left = "its key is empty, so it doesn't count the request"
	case err == keytext.ErrEmpty:
		x.Left = "its key is empty, so the request is denied with 403"
	default:
		x.Left = "its key can't be determined: " + err.Error()
	}
	return x
}

// whyNoKey returns why a key can't be read from a request alone, or "".
func whyNoKey(r keys.Reads) string {
	switch {
	case r.Function:
		return "a function of the application computes its key"
	case r.Router:
		return "its key is the route that the application's router matches"
	case r.Given:
		return "requests don't have a GivenKey"
	}
	return ""
}
