package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Page is what the handler returns to a request that accepts application/json. Figures are those of
// Process since the page was made, or of the last five minutes where a field says recent. Keys are as
// the page shows them.
type Page struct {
	Process  string    `json:"process"`
	At       time.Time `json:"at"`
	Wrong    []Problem `json:"wrong"` // now, the worst of each limiter first
	Limiters []Limiter `json:"limiters"`
	Key      *Key      `json:"key,omitempty"` // that was looked up
}

// Problem is a current problem.
type Problem struct {
	Limiter string   `json:"limiter"`
	What    string   `json:"what"`
	Text    string   `json:"text"`
	At      string   `json:"at,omitempty"` // since when, or when last
	Limits  []string `json:"limits,omitempty"`
	Warning string   `json:"warning,omitempty"` // its kind
	Link    string   `json:"link,omitempty"`
}

// Limiter is a limiter and its limits.
type Limiter struct {
	Name     string   `json:"name"`
	Shared   bool     `json:"shared"` // all processes that use the store share its counts
	Allowed  uint64   `json:"allowed"`
	Denied   uint64   `json:"denied"`
	InFlight int64    `json:"in_flight"`
	Waiting  int64    `json:"waiting"`
	Limits   []Limit  `json:"limits"`
	Denials  []Denial `json:"denials"` // of all limits, the most denied first
	// Unmatched are the routes that no request has matched.
	Unmatched []string `json:"unmatched,omitempty"`
}

// Limit is a limit. For a dry run, Denied counts requests that it would have denied.
type Limit struct {
	Name          string  `json:"name"`
	Rule          string  `json:"rule"`
	RuleOf        string  `json:"rule_of,omitempty"` // the key that has it, if each key has its own
	DryRun        bool    `json:"dry_run"`
	Allowed       uint64  `json:"allowed"`
	Denied        uint64  `json:"denied"`
	RecentAllowed uint64  `json:"recent_allowed"`
	RecentDenied  uint64  `json:"recent_denied"`
	MostDenied    []Count `json:"most_denied"`
	MostAdmitted  []Count `json:"most_admitted"`
	// Used is the number of units used by the fullest key of the last ten seconds. Capacity is
	// the number of units that this key may use. Both are 0 if there was no decision.
	Used     int64 `json:"used"`
	Capacity int64 `json:"capacity"`
}

// Count is the number of recent requests and raises (Permit.Extend) of a key that a limit has denied, or admitted.
type Count struct {
	Key     string `json:"key"`
	Link    string `json:"link,omitempty"` // of the key, relative to the page
	AtLeast uint64 `json:"at_least"`
	AtMost  uint64 `json:"at_most"`
}

// Denial groups the recent denials of a key by a limit. At, Route and Why describe the last of
// them, if it is known.
type Denial struct {
	Limit  string `json:"limit"`
	DryRun bool   `json:"dry_run"`
	Count
	At    string `json:"at,omitempty"`
	Route string `json:"route,omitempty"`
	Why   string `json:"why,omitempty"`
}

// Key has the units that a key has left, for each limiter.
type Key struct {
	Key string       `json:"key"`
	In  []KeyLimiter `json:"in"`
}

// KeyLimiter has the units that a key has left, for each limit of one limiter.
type KeyLimiter struct {
	Limiter string     `json:"limiter"`
	As      string     `json:"as,omitempty"` // the key of the address that was typed
	Error   string     `json:"error,omitempty"`
	Done    string     `json:"done,omitempty"` // what an action has done
	Used    bool       `json:"used"`           // some limit counts something for the key
	Seen    bool       `json:"seen"`           // the process has decided requests of it
	Since   string     `json:"since,omitempty"`
	Limits  []Standing `json:"limits"`
	// Missing are limits in which the key can't be looked up.
	Missing []string `json:"missing,omitempty"`
}

// Standing has the units that a key has left of one limit.
type Standing struct {
	Limit      string `json:"limit"`
	Rule       string `json:"rule"`
	DryRun     bool   `json:"dry_run"`
	Everybody  bool   `json:"everybody"` // all requests have one key
	Remaining  int64  `json:"remaining"`
	Capacity   int64  `json:"capacity"`
	InFlight   int64  `json:"in_flight"`
	Passes     bool   `json:"passes"` // a request of cost 1 would pass
	Banned     bool   `json:"banned"`
	RetryAfter string `json:"retry_after,omitempty"`
	ResetAfter string `json:"reset_after,omitempty"`
}

// wantsJSON reports whether a request accepts JSON and no HTML. Browsers ask for HTML.
func wantsJSON(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html")
}

func (p *page) showJSON(w http.ResponseWriter, _ *http.Request, status int, f *keyResult) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(p.json(f))
}

func (p *page) json(f *keyResult) Page {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	d := Page{Process: p.name, At: p.rendered, Wrong: []Problem{}, Key: f.json()}
	for _, v := range p.views {
		for _, w := range v.Wrong {
			d.Wrong = append(d.Wrong, Problem{Limiter: w.Limiter, What: w.What, Text: w.Text, At: w.At, Limits: w.Limits,
				Warning: w.See, Link: w.Link})
		}
		l := Limiter{Name: v.Title, Shared: v.Shared, Allowed: v.Allowed, Denied: v.Denied, InFlight: v.InFlight,
			Waiting: v.Waiting,
			Limits:  []Limit{}, Denials: []Denial{}, Unmatched: v.Unmatched}
		for i := range v.Limits {
			at := &v.Limits[i]
			l.Limits = append(l.Limits, Limit{Name: at.Name, Rule: at.Text, RuleOf: at.OfKey.Text, DryRun: at.DryRun,
				Allowed: at.Allowed, Denied: at.Denied,
				RecentAllowed: at.Recent.Allowed, RecentDenied: at.Recent.Denied, MostDenied: newCounts(at.Stopped),
				MostAdmitted: newCounts(at.Admitted),
				Used:         at.Near.Nearest.capacity - min(at.Near.Nearest.left, at.Near.Nearest.capacity),
				Capacity:     at.Near.Nearest.capacity})
		}
		for _, r := range p.allDenials(v) {
			l.Denials = append(l.Denials,
				Denial{r.Limit, r.DryRun, Count{r.Key.Text, r.Key.link(), r.AtLeast, r.AtMost}, r.At, r.Route, r.Why})
		}
		d.Limiters = append(d.Limiters, l)
	}
	return d
}

func newCounts(keys []keyView) []Count {
	all := []Count{}
	for _, k := range keys {
		all = append(all, Count{k.Text, k.link(), k.AtLeast, k.AtMost})
	}
	return all
}

func (f *keyResult) json() *Key {
	if f == nil {
		return nil
	}
	k := &Key{Key: f.Key}
	for _, at := range f.Here {
		in := KeyLimiter{Limiter: at.Limiter, As: at.As, Error: at.Error, Done: at.Done, Used: at.Used, Seen: at.Seen,
			Since: at.Since, Missing: at.Missing, Limits: []Standing{}}
		for _, s := range at.Limits {
			in.Limits = append(in.Limits, Standing{Limit: s.Limit, Rule: s.Text, DryRun: s.DryRun, Everybody: s.Everybody,
				Remaining: s.Left, Capacity: s.Of,
				InFlight: s.InFlight, Passes: s.Free, Banned: s.Banned, RetryAfter: s.More, ResetAfter: s.Full})
		}
		k.In = append(k.In, in)
	}
	return k
}
