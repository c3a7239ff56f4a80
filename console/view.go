package console

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/topkeys"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// shown is how many of the most denied keys the page lists, and of the most admitted.
const shown = 10

// limiterView is a limiter as the templates see it.
type limiterView struct {
	Title, Where                  string
	Index                         int
	Shared                        bool // the store's counts, by all its processes
	Wrong                         []problem
	Leases                        int
	Memory                        *memoryView
	Allowed, Denied               uint64
	Share, P50, P99               string
	Waiting, InFlight             int64
	Other                         []countView
	Traffic, Slots                chart
	Limits                        []limitView
	Denials                       []denialView
	Failure, Degraded, Policy     *failureView
	Updated                       string
	Unmatched                     []string
	Warnings                      []stint.Warning
	Unlisted, Clear, Measured     bool
	MostApart, PerSecond, Minutes int
}

type memoryView struct {
	Keys, Max        int64
	Overflow, Denied uint64
}

type countView struct {
	What string
	N    uint64
}

type failureView struct{ At, What, Err, Path, InForce string }

type limitView struct {
	Name, Text, Key, Kept string
	Routes                []string
	DryRun, Slots, Rule   bool
	Idle                  bool   // it has denied nothing and made nothing wait
	Since                 string // it is as it is now
	WouldDeny             int64
	Local                 bool
	Allowed, Denied       uint64
	Bound, Dry, Bans      uint64
	ban                   bool
	Share                 string
	Held, Last, Of        int64
	Line                  chart
	Index                 int // of the limiter
	Shared                bool
	Recent                recent
	Near                  spark
	Binder                *binder
	Denials               []denialView
	Adapted               *adaptedView
	Stopped, Admitted     []keyView
}

type adaptedView struct {
	Now           int64
	Reason        string
	Changed       bool // since the console began
	Limit, Latent chart
}

type keyView struct {
	shownKey
	AtLeast, AtMost uint64
}

// binder is the key that a limit has denied most, or, if it has denied none, admitted most.
type binder struct {
	keyView
	Denies bool
	Share  string // of all that the limit has denied, or admitted, lately
}

// recent counts a limit's decisions of the last five minutes.
type recent struct {
	Allowed, Denied, All uint64
	Share                string
	Width                string // of the bar, of 100
}

type denialView struct {
	At, Route, Limit string
	Key              shownKey
	Remaining, Cost  int64
	RetryAfter       string
	Why              string
}

// problem is something wrong, on top of the page.
type problem struct {
	Limiter, At, What, Text, Link, See string
	Limits                             []string
}

// title names a limiter on the page.
func (b *board) title(i int) string {
	return cmp.Or(b.limiter.Describe().Name, "limiter "+strconv.Itoa(i+1))
}

// limiter reads a board.
func (p *page) limiter(b *board) *limiterView {
	d := b.limiter.Describe()
	v := &limiterView{
		Index: slices.Index(p.boards, b), Where: where(d.Store), Shared: !isMemory(d.Store),
		Warnings: d.Warnings, Unmatched: d.Unmatched, Clear: p.Clear, MostApart: held, PerSecond: perSecond, Minutes: span / 60,
	}
	v.Title = b.title(v.Index)
	if m, ok := d.Store.(interface{ Stats() memstore.Stats }); ok {
		s := m.Stats()
		v.Memory = &memoryView{Keys: s.Keys, Max: s.MaxKeys, Overflow: s.Overflow, Denied: s.Denied}
	}
	now := b.totals(v)
	for _, l := range b.known(d) {
		at := p.limit(b, l, d, now)
		at.Index = v.Index
		v.Limits = append(v.Limits, at)
	}
	rules := map[string]stint.Rule{}
	for _, r := range d.Rules {
		if _, known := rules[r.Limit]; !known {
			rules[r.Limit] = r
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v.Unlisted = b.met >= mostLimits
	for _, r := range slices.Backward(b.denials) {
		shown := p.denial(r, rules)
		v.Denials = append(v.Denials, shown)
		for i := range v.Limits {
			if v.Limits[i].Name == r.limit {
				v.Limits[i].Denials = append(v.Limits[i].Denials, shown)
			}
		}
	}
	v.Failure, v.Degraded, v.Policy = b.failure.view(), b.degraded.view(), b.policy.view()
	if s, ok := d.Store.(store.Degradable); ok && v.Degraded == nil { // since before the page
		v.Degraded = new(failureView)
		if err := s.Degraded(); err != nil {
			v.Degraded.Err = err.Error()
		}
	}
	if !b.inForce.IsZero() {
		v.Policy.InForce = b.inForce.Format(time.DateTime)
	}
	if !b.updated.IsZero() {
		v.Updated = b.updated.Format(time.DateTime)
	}
	v.Leases = b.leases
	v.Wrong = v.problems(b)
	return v
}

// lately is for how long the page calls an error wrong that hasn't come again.
const lately = 15 * time.Minute

// problems lists what is wrong with a limiter, the worst first. The caller holds b.mu.
func (v *limiterView) problems(b *board) (all []problem) {
	add := func(p problem) {
		p.Limiter = v.Title
		all = append(all, p)
	}
	if d := v.Degraded; d != nil && d.Err != "" {
		add(problem{At: d.At, What: "primary store failed", Text: d.Err + ". Each process counts by itself meanwhile."})
	}
	if f := v.Failure; f != nil && time.Since(b.failure.at) < lately {
		add(problem{At: f.At, What: f.What, Text: f.Err})
	}
	if b.leases > 0 && time.Since(b.lost.at) < lately {
		p := problem{At: b.lost.at.Format(time.DateTime), What: "leases lost: " + strconv.Itoa(b.leases),
			Text: "slots are held whose lease is gone, so more requests may run than the limit says"}
		if b.lost.what != "" {
			p.Limits = []string{b.lost.what}
		}
		add(p)
	}
	if m := v.Memory; m != nil && m.Overflow > 0 && 10*m.Keys >= 9*m.Max {
		add(problem{What: "the store in memory is full", Text: fmt.Sprintf("%d of %d keys; %d charges shared states, %d of them were denied", m.Keys, m.Max, m.Overflow, m.Denied)})
	}
	if f := v.Policy; f != nil && f.Err != "" {
		since := "from the start"
		if f.InForce != "" {
			since = "of " + f.InForce
		}
		add(problem{At: f.At, What: "policy file rejected", Text: f.Err + ". The policy " + since + " stays in force."})
	}
	for _, w := range v.Warnings {
		add(problem{What: "warning", Link: w.Link, See: w.Kind, Limits: w.Limits, Text: w.Text})
	}
	return all
}

// denial returns a denial as the page shows it.
func (p *page) denial(r denial, rules map[string]stint.Rule) denialView {
	v := denialView{At: r.at.Format("15:04:05"), Route: cmp.Or(r.route, "—"), Limit: r.limit, Key: p.shown(r.key),
		Remaining: r.remaining, Cost: r.cost, RetryAfter: until(r.retryAfter)}
	rule, known := rules[r.limit]
	switch {
	case !known:
		v.Why = "the limit is " + elsewhere
	case rule.Spec.Algorithm == store.Ban:
		v.Why = "it was banned: " + rule.Text
	case rule.Spec.Algorithm == store.Concurrency:
		v.Why = fmt.Sprintf("%d free, %d needed: %s", r.remaining, r.cost, rule.Text)
	default:
		v.Why = fmt.Sprintf("%d left, %d needed: %s", r.remaining, r.cost, rule.Text)
	}
	return v
}

// where says which processes share the counts of a store.
func where(s store.Store) string {
	if isMemory(s) {
		return "Counts are in this process's memory. Each process limits by itself."
	}
	return fmt.Sprintf("Counts are in a %s, shared by all processes that use it. "+
		"The figures on this page are this process's own; what a key has left counts all processes.", strings.TrimPrefix(fmt.Sprintf("%T", s), "*"))
}

func isMemory(s store.Store) bool {
	_, is := s.(*memstore.Store)
	return is
}

func (f failure) view() *failureView {
	if f.at.IsZero() {
		return nil
	}
	return &failureView{At: f.at.Format(time.DateTime), What: f.what, Err: f.err, Path: f.path}
}

// totals adds up the parts of a board. It returns the second that it is in by the board's
// clock, which may be behind: charts end there.
func (b *board) totals(v *limiterView) (now uint32) {
	var decided, changed [2][span]float64
	var unfinished, late [2]float64
	var outcomes [32]uint64
	var took [64 * 8]uint64
	now, _ = b.lock()
	for i := range b.parts {
		p := &b.parts[i]
		p.close(b, now)
		p.decisions.addTo(&decided, &unfinished, now)
		p.changes.addTo(&changed, &late, now)
		p.store.addTo(&took, now)
		v.InFlight, v.Waiting = v.InFlight+p.inFlight, v.Waiting+p.waiting
		for k, n := range p.outcomes {
			outcomes[k] += n
		}
	}
	b.unlock()
	v.InFlight, v.Waiting = max(0, v.InFlight), max(0, v.Waiting)
	v.Allowed = outcomes[stint.EventAdmitted]
	v.Denied = outcomes[stint.EventDenied] + outcomes[stint.EventBlocked] + outcomes[stint.EventEmptyKey]
	v.Share = share(v.Denied, v.Allowed+v.Denied)
	for k := range outcomes {
		switch kind := stint.EventKind(k); kind {
		case stint.EventAdmitted, stint.EventDenied, stint.EventSettled, stint.EventPaced, stint.EventUpdated, stint.EventPolicy,
			stint.EventWaiting, stint.EventEnded, stint.EventLimitChanged, stint.EventWarning:
		default:
			if outcomes[k] > 0 {
				v.Other = append(v.Other, countView{inWords(kind), outcomes[k]})
			}
		}
	}
	v.Measured = quantile(&took, 1) > 0
	v.P50, v.P99 = brief(quantile(&took, 0.5)), brief(quantile(&took, 0.99))
	v.Traffic = newChart("requests a second", series{"allowed", "a", decided[allowed]}, series{"denied", "b", decided[denied]})
	v.Slots = newChart("requests",
		series{"in flight", "c", levels(float64(v.InFlight), &changed[flying], late[flying])},
		series{"waiting", "d", levels(float64(v.Waiting), &changed[waiting], late[waiting])})
	return now
}

// words are the page's names for kinds of events.
var words = map[stint.EventKind]string{
	stint.EventCanceled:      "canceled",
	stint.EventBlocked:       "blocked",
	stint.EventEmptyKey:      "empty keys",
	stint.EventKeyFailed:     "key function failed",
	stint.EventLimitsFailed:  "limits or cost unknown",
	stint.EventStoreFailed:   "store failed",
	stint.EventSettleFailed:  "not settled",
	stint.EventDryRunDenied:  "denied in dry run",
	stint.EventBanned:        "bans started",
	stint.EventStoreDegraded: "changes of the primary store",
	stint.EventLeaseLost:     "leases lost",
}

func inWords(k stint.EventKind) string { return cmp.Or(words[k], k.String()) }

// known returns the limits of a description, then all others seen, sorted by name.
func (b *board) known(d stint.Description) (all []*limit) {
	for _, r := range d.Rules {
		if l := b.limit(r.Limit); l != nil && !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	var others []*limit
	for l := range b.seen {
		if !slices.Contains(all, l) {
			others = append(others, l)
		}
	}
	slices.SortFunc(others, func(a, b *limit) int { return cmp.Compare(a.name, b.name) })
	return append(all, others...)
}

// limit reads a limit's figures.
func (p *page) limit(b *board, l *limit, d stint.Description, now uint32) limitView {
	at := time.Since(b.began)
	v := limitView{Name: l.name, Dry: l.dry.Load(), Bans: l.bans.Load(), Held: max(0, l.held.Load()), Last: l.last.Load(), Of: l.quota.Load()}
	v.describe(d)
	var sums [2][span]float64
	var unfinished [2]float64
	var stopped, admitted []*topkeys.Sketch
	var left [span]int64
	for i := range left {
		left[i] = math.MaxInt64
	}
	for i := range b.parts {
		part := &b.parts[i]
		part.mu.Lock()
		defer part.mu.Unlock() // at the end, since all parts' sketches are read together
		part.count(b)
		f := part.figures[l.name]
		if f == nil {
			continue
		}
		v.Allowed, v.Denied, v.Bound = v.Allowed+f.allowed, v.Denied+f.denied, v.Bound+f.bound
		f.ring.addTo(&sums, &unfinished, now)
		f.near.addTo(&left, now)
		stopped, admitted = append(stopped, f.stopped.Sketches(at)...), append(admitted, f.admitted.Sketches(at)...)
	}
	v.Share = share(v.Denied, v.Allowed+v.Denied)
	v.Line = newChart(l.name+", requests a second", series{"allowed", "a", sums[allowed]}, series{"denied", "b", sums[denied]})
	v.Stopped, v.Admitted = p.keys(topkeys.Top(shown, stopped...)), p.keys(topkeys.Top(shown, admitted...))
	v.recent(&sums, unfinished)
	v.Near = newSpark(l.name, v.unit(), v.most(d, &left), &left, &sums[denied])
	v.binds()
	if a := l.adapted.Load(); a != nil {
		v.Adapted = a.view(l.name, now)
	} else if v.Local && v.Of > 0 {
		v.Adapted = &adaptedView{Now: v.Of}
	}
	return v
}

func (a *adapted) view(name string, now uint32) *adaptedView {
	reason, _ := a.reason.Load().(string)
	latent, base := a.latency.line(now), a.baseline.line(now)
	for i := range latent {
		latent[i] /= 1000
		base[i] /= 1000
	}
	return &adaptedView{Now: a.to.level.Load(), Reason: reason, Changed: true,
		Limit:  newChart(name+", slots", series{name, "c", a.to.line(now)}),
		Latent: newChart(name+", ms of latency", series{"latency", "d", latent}, series{"compared with", "a", base})}
}

// keyText says who is limited.
func keyText(k stint.Key) string {
	switch {
	case k.Constant():
		return "one for all requests"
	case k == stint.GivenKey():
		return "given to Take"
	}
	return "from the request: " + k.String()
}

// describe describes a limit by its rules.
func (v *limitView) describe(d stint.Description) {
	for _, r := range d.Rules {
		if r.Limit != v.Name {
			continue
		}
		if !v.Rule {
			v.Idle, v.Since = true, r.Since.Format(time.DateTime)
			v.Rule, v.Text, v.DryRun, v.Local, v.Slots = true, r.Text, r.DryRun, r.Local, r.Spec.Algorithm == store.Concurrency
			v.ban = r.Spec.Algorithm == store.Ban
			v.Key = keyText(r.Key)
			if v.Kept, v.Shared = "the store, for all its processes", true; r.Local || isMemory(d.Store) {
				v.Kept, v.Shared = "this process", false
			}
		}
		v.Idle, v.WouldDeny = v.Idle && !r.Bound, v.WouldDeny+r.WouldDeny
		v.Routes = append(v.Routes, whereOf(r))
	}
	if !v.Rule {
		v.Text, v.Key = elsewhere, "from the request"
	}
}

// recent adds up what the limit has decided lately.
func (v *limitView) recent(sums *[2][span]float64, late [2]float64) {
	n := [2]uint64{}
	for k := range n {
		for _, x := range sums[k] {
			n[k] += uint64(x)
		}
		n[k] += uint64(late[k])
	}
	v.Recent = recent{Allowed: n[allowed], Denied: n[denied], All: n[allowed] + n[denied], Share: share(n[denied], n[allowed]+n[denied]), Width: "0"}
	if n[denied] > 0 {
		v.Recent.Width = strconv.FormatFloat(100*float64(n[denied])/float64(n[allowed]+n[denied]), 'f', 1, 64)
	}
}

// unit names what the limit counts, beside units of a cost.
func (v *limitView) unit() string {
	switch {
	case v.Slots:
		return "slots"
	case v.ban:
		return "denials"
	}
	return "units"
}

// most returns how many units a key has that has used none. For a limit without a description
// it is the most that some key had left.
func (v *limitView) most(d stint.Description, left *[span]int64) int64 {
	if v.Slots && v.Of > 0 {
		return v.Of // an adaptive limit's number changes
	}
	for _, r := range d.Rules {
		if r.Limit == v.Name {
			return max(r.Spec.Units, r.Spec.Burst, 1)
		}
	}
	n := int64(1)
	for _, l := range left {
		if l != math.MaxInt64 {
			n = max(n, l+1)
		}
	}
	return n
}

// binds finds the key that binds the limit.
func (v *limitView) binds() {
	all, of, denies := v.Stopped, v.Recent.Denied, true
	if len(all) == 0 {
		all, of, denies = v.Admitted, v.Recent.Allowed, false
	}
	if len(all) == 0 || of == 0 {
		return
	}
	v.Binder = &binder{keyView: all[0], Denies: denies, Share: strconv.FormatFloat(min(100, 100*float64(all[0].AtLeast)/float64(of)), 'f', 0, 64) + " %"}
}

// elsewhere says where a limit comes from that has figures but no description.
const elsewhere = "from a WithLimitFunc, a limiter derived by With, or before an Update"

// whereOf returns the requests that a rule is for.
func whereOf(r stint.Rule) string {
	return cmp.Or(r.Route, "all requests, unless a route says otherwise")
}

func (p *page) keys(counts []topkeys.Count) (all []keyView) {
	for _, c := range counts {
		if c.AtLeast > 0 {
			all = append(all, keyView{p.shown(c.Key), c.AtLeast, c.AtMost})
		}
	}
	return all
}

func share(n, of uint64) string {
	if of == 0 {
		return "—"
	}
	return strconv.FormatFloat(100*float64(n)/float64(of), 'f', 1, 64) + " %"
}

// brief formats a duration with two digits.
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// until formats a wait.
func until(d time.Duration) string {
	switch {
	case d == stint.Never:
		return "never"
	case d <= 0:
		return ""
	case d < time.Second:
		return "under 1s"
	}
	return d.Round(time.Second).String()
}
