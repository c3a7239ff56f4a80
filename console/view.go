package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/topkeys"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// listedKeys is how many of the most denied keys the page lists, and of the most admitted.
const listedKeys = 10

// limiterView is a limiter as the templates see it.
type limiterView struct {
	Title, Where              string
	Index                     int
	Shared                    bool // the store's counts, by all its processes
	Wrong                     []problem
	Leases                    int
	Memory                    *memoryView
	Allowed, Denied           uint64
	Share, P50, P99           string
	Waiting, InFlight         int64
	Other                     []countView
	Traffic, Slots            chart
	Limits                    []limitView
	Denials                   []denialView // once it is opened
	Failure, Primary, Policy  *failureView
	Updated                   string
	Unmatched                 []string
	Warnings                  []stint.Warning
	Unlisted, Clear, Measured bool
	MostApart, Minutes        int
	ID                        string // in links
	board                     *board
	instead                   string // what decides while the primary store is down
}

type memoryView struct {
	Keys, Max        int64
	Overflow, Denied uint64
}

type countView struct {
	What string
	N    uint64
}

type failureView struct {
	At, What, Err, Path, InForce string
	at                           time.Time
}

type limitView struct {
	Name, Text, Key, Kept string
	Routes                []string
	DryRun, Slots, Rule   bool
	Sourced               bool // Text is the rule of one key, OfKey
	OfKey                 shownKey
	Idle                  bool   // it has denied nothing and made nothing wait
	Since                 string // it is as it is now
	WouldDeny             int64
	Local                 bool
	Allowed, Denied       uint64
	Bound, Dry, Bans      uint64
	Reached               uint64 // percentages of WithNearLimit, by keys
	ban                   bool
	Share                 string
	Held, Last, Of        int64
	Line                  chart
	Index                 int // of the limiter
	Shared                bool
	Recent                recent
	Near                  spark
	Binder                *binder
	Denials               []denialView // once it is opened
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
	key             string // as stores see it
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

// denialView is what a limit has denied a key lately.
type denialView struct {
	Limit           string
	DryRun          bool
	Key             shownKey
	AtLeast, AtMost uint64
	// Of the last one, if it is remembered.
	At, Route, Why, RetryAfter string
}

// problem is something wrong, on top of the page.
type problem struct {
	Limiter, At, What, Text, Link, See string
	Limits                             []string
}

// viewLimiter returns the view of a board.
func (p *page) viewLimiter(b *board) *limiterView {
	d := b.limiter.Describe()
	v := &limiterView{
		Index: slices.Index(p.boards, b), Where: storeText(d.Store), Shared: !isMemory(d.Store),
		Warnings: d.Warnings, Unmatched: d.Unmatched, Clear: p.Clear, MostApart: sketchSize, Minutes: span / 60,
		board: b, ID: b.id,
	}
	v.Title = b.title
	if m, ok := d.Store.(interface{ Stats() memstore.Stats }); ok {
		s := m.Stats()
		v.Memory = &memoryView{Keys: s.Keys, Max: s.MaxKeys, Overflow: s.Overflow, Denied: s.Denied}
	}
	now := b.totals(v)
	for _, l := range b.orderedLimits(d) {
		at := p.viewLimit(b, l, d, now)
		at.Index = v.Index
		v.Limits = append(v.Limits, at)
	}
	var instead store.Store
	var primary error
	s, degradable := d.Store.(store.Degradable)
	if degradable {
		instead, primary = s.Degraded()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v.Unlisted = b.limitCount >= mostLimits
	v.Policy = b.policy.view()
	for _, f := range b.failures {
		if v.Failure == nil || f.at.After(v.Failure.at) {
			v.Failure = f.view()
		}
	}
	if degradable {
		v.Primary = new(failureView)
		if primary != nil {
			v.Primary.Err, v.instead = primary.Error(), insteadText(instead)
			if !b.openSince.IsZero() { // it may be open since before the page
				v.Primary.At = b.openSince.Format(time.DateTime)
			}
		}
	}
	if !b.policySince.IsZero() {
		v.Policy.InForce = b.policySince.Format(time.DateTime)
	}
	if !b.updated.IsZero() {
		v.Updated = b.updated.Format(time.DateTime)
	}
	v.Leases = b.leases
	v.Wrong = v.problems(b)
	return v
}

// problemFor is how long the page shows a failure that hasn't occurred again. A lasting problem, such
// as an open breaker, is shown until it ends.
const problemFor = time.Minute

// failureOrder is the order in which failures are listed.
var failureOrder = [...]stint.EventKind{stint.EventStoreFailed, stint.EventSettleFailed, stint.EventSourceFailed,
	stint.EventLimitsFailed, stint.EventKeyFailed, stint.EventLeaseLost}

// problems lists a limiter's current problems, the worst first. The caller holds b.mu.
func (v *limiterView) problems(b *board) (all []problem) {
	add := func(p problem) {
		p.Limiter = v.Title
		all = append(all, p)
	}
	degraded := v.Primary != nil && v.Primary.Err != ""
	if degraded {
		add(problem{At: v.Primary.At, What: "the primary store is down", Text: v.Primary.Err + ". " + v.instead})
	}
	for _, kind := range failureOrder {
		f := b.failures[kind]
		if f == nil || time.Since(f.at) >= problemFor {
			continue
		}
		p := problem{At: f.at.Format(time.DateTime), What: f.what, Text: f.err}
		switch kind {
		case stint.EventLeaseLost:
			p.What += ": " + strconv.Itoa(b.leases)
			p.Text = "leases of slots that are still held were lost, so more requests than the limit may run"
		}
		if f.limit != "" {
			p.Limits = []string{f.limit}
		}
		add(p)
	}
	if m := v.Memory; m != nil && m.Overflow > 0 && 10*m.Keys >= 9*m.Max {
		add(problem{What: "the store in memory is full", Text: fmt.Sprintf("%d of %d keys; "+
			"%d charges of new keys shared counts, and %d of these were denied", m.Keys, m.Max, m.Overflow, m.Denied)})
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

// denialsOf returns the keys that a limit has denied most lately, and why it denied them last.
func (p *page) denialsOf(b *board, l *limitView) (all []denialView) {
	for _, k := range l.Stopped {
		v := denialView{Limit: l.Name, DryRun: l.DryRun, Key: k.shownKey, AtLeast: k.AtLeast, AtMost: k.AtMost}
		if r, found := b.lastDenial(k.key, l.Name); found {
			rule := l.Text
			if l.Sourced { // of another key, maybe
				rule = ""
			}
			v.setLast(r, rule, l.ban)
		}
		all = append(all, v)
	}
	return all
}

// allDenials returns the denials of all limits of a limiter, the most first.
func (p *page) allDenials(v *limiterView) (all []denialView) {
	for i := range v.Limits {
		all = append(all, p.denialsOf(v.board, &v.Limits[i])...)
	}
	slices.SortStableFunc(all, func(x, y denialView) int { return cmp.Compare(y.AtLeast, x.AtLeast) })
	return all
}

// setLast sets the fields of the last denial.
func (v *denialView) setLast(r denial, rule string, ban bool) {
	v.At, v.Route, v.DryRun, v.RetryAfter = r.at.Format("15:04:05"), cmp.Or(r.route, "—"), r.dryRun, waitText(r.retryAfter)
	if v.Why = fmt.Sprintf("%d of %d left, %d needed", max(r.remaining, 0), r.capacity, r.cost); ban {
		v.Why = "it was banned"
	}
	if rule != "" {
		v.Why += ": " + rule
	}
}

// storeText describes which processes share the counts of a store.
func storeText(s store.Store) string {
	if isMemory(s) {
		return "Counts are in this process's memory. Each process limits by itself."
	}
	return fmt.Sprintf("Counts are in a %s, shared by all processes that use it. "+
		"The figures on this page are this process's own; what a key has left counts all processes.",
		strings.TrimPrefix(fmt.Sprintf("%T", s), "*"))
}

// insteadText says what decides while a primary store is down.
func insteadText(instead store.Store) string {
	switch {
	case instead == nil:
		return "No store decides meanwhile: requests pass or are denied, as each limit's failure policy says."
	case isMemory(instead):
		return "Limits in memory decide meanwhile. Each process counts by itself, up to the limit or, with failover.WithProcesses(n), up to an n-th of it."
	}
	return fmt.Sprintf("A %s decides meanwhile.", strings.TrimPrefix(fmt.Sprintf("%T", instead), "*"))
}

func isMemory(s store.Store) bool {
	_, is := s.(*memstore.Store)
	return is
}

func (f *failure) view() *failureView {
	if f.at.IsZero() {
		return nil
	}
	return &failureView{At: f.at.Format(time.DateTime), What: f.what, Err: f.err, Path: f.path, at: f.at}
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
		p.closeSecond(b, now)
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
	v.Denied += outcomes[keyDenied] + outcomes[limitsDenied]
	v.Share = share(v.Denied, v.Allowed+v.Denied)
	for k := range outcomes {
		switch kind := stint.EventKind(k); kind {
		case stint.EventAdmitted, stint.EventDenied, stint.EventSettled, stint.EventPaced, stint.EventUpdated, stint.EventPolicy,
			stint.EventWaiting, stint.EventEnded, stint.EventLimitChanged, stint.EventExtended, stint.EventWarning:
		default:
			if outcomes[k] > 0 {
				v.Other = append(v.Other, countView{eventName(kind), outcomes[k]})
			}
		}
	}
	v.Measured = quantile(&took, 1) > 0
	v.P50, v.P99 = brief(quantile(&took, 0.5)), brief(quantile(&took, 0.99))
	v.Traffic = newChart("requests a second", series{"allowed", "a", decided[allowed]},
		series{"denied", "b", decided[denied]})
	v.Slots = newChart("requests",
		series{"in flight", "c", levels(float64(v.InFlight), &changed[running], late[running])},
		series{"waiting", "d", levels(float64(v.Waiting), &changed[waiting], late[waiting])})
	return now
}

// eventText are the page's names for kinds of events.
var eventText = map[stint.EventKind]string{
	stint.EventCanceled:      "canceled",
	stint.EventBlocked:       "blocked",
	stint.EventEmptyKey:      "empty keys",
	stint.EventKeyFailed:     "key function failed",
	stint.EventLimitsFailed:  "limits or cost unknown",
	stint.EventStoreFailed:   "store failed",
	stint.EventSettleFailed:  "not settled",
	stint.EventDryRunDenied:  "denied in dry run",
	stint.EventBanned:        "bans started",
	stint.EventNearLimit:     "keys near a limit",
	stint.EventStoreDegraded: "changes of the primary store",
	stint.EventLeaseLost:     "leases lost",
	stint.EventSourceFailed:  "limits not read",
	keyDenied:                "denied by a key function",
	limitsDenied:             "denied by a limit function, as for no plan",
}

func eventName(k stint.EventKind) string { return cmp.Or(eventText[k], k.String()) }

// orderedLimits returns the limits of a description, then all others that events have named, sorted by name.
func (b *board) orderedLimits(d stint.Description) (all []*limit) {
	for _, r := range d.Rules {
		if l := b.limit(r.Limit); l != nil && !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	var others []*limit
	for l := range b.eachLimit {
		if !slices.Contains(all, l) {
			others = append(others, l)
		}
	}
	slices.SortFunc(others, func(a, b *limit) int { return cmp.Compare(a.name, b.name) })
	return append(all, others...)
}

// viewLimit returns the view of a limit.
func (p *page) viewLimit(b *board, l *limit, d stint.Description, now uint32) limitView {
	v := limitView{Name: l.name, Dry: l.dryRunDenials.Load(), Bans: l.bans.Load(), Reached: l.reached.Load(),
		Held: max(0, l.held.Load()), Last: l.lastHeld.Load(), Of: l.capacity.Load()}
	v.describe(d)
	var s limitSeries
	p.addFigures(&v, &s, b, now)
	v.Share = share(v.Denied, v.Allowed+v.Denied)
	v.Line = newChart(l.name+", requests a second", series{"allowed", "a", s.decided[allowed]},
		series{"denied", "b", s.decided[denied]})
	v.setRecent(&s)
	v.setBinder()
	if !v.Rule && v.Binder != nil {
		v.setRule(p, l.ruleOf(b, v.Binder.key))
	}
	v.Near = newSpark(l.name, v.unit(), v.capacity(d), &s.near, &s.decided[denied])
	if a := l.adaptation.Load(); a != nil {
		v.Adapted = a.view(l.name, now)
	} else if v.Local && v.Of > 0 {
		v.Adapted = &adaptedView{Now: v.Of}
	}
	return v
}

// limitSeries is a limit's decisions, and the usage of its fullest key, in each of the last seconds.
type limitSeries struct {
	decided    [2][span]float64
	unfinished [2]float64 // decisions of the second that isn't over
	near       [span]usage
}

// addFigures adds a limit's figures of all parts to its view and its series. The parts stay locked until
// all are added, because their sketches of keys are read together.
func (p *page) addFigures(v *limitView, s *limitSeries, b *board, now uint32) {
	at := time.Since(b.began)
	var stopped, admitted []*topkeys.Sketch
	for i := range b.parts {
		part := &b.parts[i]
		part.mu.Lock()
		defer part.mu.Unlock()
		part.countBatch(b)
		f := part.figures[v.Name]
		if f == nil {
			continue
		}
		v.Allowed, v.Denied, v.Bound = v.Allowed+f.allowed, v.Denied+f.denied, v.Bound+f.bound
		f.ring.addTo(&s.decided, &s.unfinished, now)
		f.near.addTo(&s.near, now)
		stopped, admitted = append(stopped, f.stopped.Sketches(at)...), append(admitted, f.admitted.Sketches(at)...)
	}
	v.Stopped = p.viewKeys(topkeys.Top(listedKeys, stopped...))
	v.Admitted = p.viewKeys(topkeys.Top(listedKeys, admitted...))
}

func (a *adaptation) view(name string, now uint32) *adaptedView {
	reason, _ := a.reason.Load().(string)
	latent, base := a.latency.values(now), a.baseline.values(now)
	for i := range latent {
		latent[i] /= 1000
		base[i] /= 1000
	}
	return &adaptedView{Now: a.to.level.Load(), Reason: reason, Changed: true,
		Limit:  newChart(name+", slots", series{name, "c", a.to.values(now)}),
		Latent: newChart(name+", ms of latency", series{"latency", "d", latent}, series{"compared with", "a", base})}
}

// keyText describes a limit's key.
func keyText(r *stint.Rule) string {
	switch {
	case r.Shared:
		return "one for all requests"
	case r.Key == stint.GivenKey():
		return "given to Take"
	}
	return "from the request: " + r.Key.String()
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
			v.Key = keyText(&r)
			if v.Kept, v.Shared = "the store, for all its processes", true; r.Local || isMemory(d.Store) {
				v.Kept, v.Shared = "this process", false
			}
		}
		v.Idle, v.WouldDeny = v.Idle && !r.Bound, v.WouldDeny+r.WouldDeny
		v.Routes = append(v.Routes, ruleScope(r))
	}
	if !v.Rule {
		v.Text, v.Key = unknownSource, "from the request"
	}
}

// setRecent sets the counts of the limit's recent decisions.
func (v *limitView) setRecent(s *limitSeries) {
	var sums [2]uint64
	for k := range sums {
		for _, n := range s.decided[k] {
			sums[k] += uint64(n)
		}
		sums[k] += uint64(s.unfinished[k])
	}
	all := sums[allowed] + sums[denied]
	v.Recent = recent{Allowed: sums[allowed], Denied: sums[denied], All: all, Share: share(sums[denied], all), Width: "0"}
	if sums[denied] > 0 {
		v.Recent.Width = strconv.FormatFloat(100*float64(sums[denied])/float64(all), 'f', 1, 64)
	}
}

// unit names the units that the limit counts.
func (v *limitView) unit() string {
	switch {
	case v.Slots:
		return "slots"
	case v.ban:
		return "denials"
	}
	return "units"
}

// rereadAfter is for how long a page shows a rule that a WithLimitSource has for a key before it asks again,
// and sourceTimeout is how long it waits for the source.
const rereadAfter, sourceTimeout = 10 * time.Second, 100 * time.Millisecond

// ruleOf returns the rule of a WithLimitSource for a key, as stores see it; or, if the source doesn't
// answer, or has none for this key, the last rule that it returned for any key.
func (l *limit) ruleOf(b *board, key string) *sourcedRule {
	last := l.sourced.Load()
	if last == nil {
		last = new(sourcedRule)
	}
	if last.askedKey == key && time.Since(last.at) < rereadAfter || time.Since(b.sourceFailed) < rereadAfter {
		return last
	}
	raw, err := url.PathUnescape(key)
	if err != nil {
		return last
	}
	ctx, cancel := context.WithTimeout(context.Background(), sourceTimeout)
	defer cancel()
	rules, err := b.limiter.DescribeKey(ctx, raw)
	if err != nil {
		b.sourceFailed = time.Now()
		return last
	}
	now := &sourcedRule{last.key, last.rule, key, time.Now()}
	if i := slices.IndexFunc(rules, func(r stint.Rule) bool { return r.Limit == l.name }); i >= 0 {
		now.key, now.rule = key, rules[i]
	}
	l.sourced.Store(now)
	return now
}

// setRule describes a limit by the rule of one of its keys.
func (v *limitView) setRule(p *page, s *sourcedRule) {
	if s.rule.Limit == "" {
		return
	}
	v.Sourced, v.OfKey, v.Text, v.DryRun, v.Key = true, p.viewKey(s.key), s.rule.Text, s.rule.DryRun, keyText(&s.rule)
	v.Slots, v.ban = s.rule.Spec.Algorithm == store.Concurrency, s.rule.Spec.Algorithm == store.Ban
}

// capacity returns how many units an unused key has, or 0 if each key has a number of its own.
func (v *limitView) capacity(d stint.Description) int64 {
	if v.Slots && v.Of > 0 {
		return v.Of // an adaptive limit's number changes
	}
	for _, r := range d.Rules {
		if r.Limit == v.Name {
			return max(r.Spec.Units, r.Spec.Burst, 1)
		}
	}
	return 0
}

// setBinder sets the key that the limit has denied most or, if it has denied none, admitted most.
func (v *limitView) setBinder() {
	all, total, denies := v.Stopped, v.Recent.Denied, true
	if len(all) == 0 {
		all, total, denies = v.Admitted, v.Recent.Allowed, false
	}
	if len(all) == 0 || total == 0 {
		return
	}
	v.Binder = &binder{keyView: all[0], Denies: denies,
		Share: strconv.FormatFloat(min(100, 100*float64(all[0].AtLeast)/float64(total)), 'f', 0, 64) + " %"}
}

// unknownSource is the text for a limit that has figures but no description.
const unknownSource = "from a WithLimitFunc, a limiter derived by With, or before an Update"

// ruleScope returns the requests that a rule is for.
func ruleScope(r stint.Rule) string {
	return cmp.Or(r.Route, "all requests, unless a route says otherwise")
}

func (p *page) viewKeys(counts []topkeys.Count) (all []keyView) {
	for _, c := range counts {
		if c.AtLeast > 0 {
			all = append(all, keyView{p.viewKey(c.Key), c.AtLeast, c.AtMost, c.Key})
		}
	}
	return all
}

func share(n, total uint64) string {
	if total == 0 {
		return "—"
	}
	return strconv.FormatFloat(100*float64(n)/float64(total), 'f', 1, 64) + " %"
}

// brief formats a duration with two digits.
func brief(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return d.Round(unit).String()
}

// waitText formats a wait.
func waitText(d time.Duration) string {
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
