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

// shown is how many of the most denied keys the page lists, and of the most admitted.
const shown = 10

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

// limiter reads a board.
func (p *page) limiter(b *board) *limiterView {
	d := b.limiter.Describe()
	v := &limiterView{
		Index: slices.Index(p.boards, b), Where: where(d.Store), Shared: !isMemory(d.Store),
		Warnings: d.Warnings, Unmatched: d.Unmatched, Clear: p.Clear, MostApart: held, Minutes: span / 60, board: b, ID: b.id,
	}
	v.Title = b.title
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
	var primary error
	s, degradable := d.Store.(store.Degradable)
	if degradable {
		primary = s.Degraded()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v.Unlisted = b.met >= mostLimits
	v.Policy = b.policy.view()
	for _, f := range b.failures {
		if v.Failure == nil || f.at.After(v.Failure.at) {
			v.Failure = f.view()
		}
	}
	if degradable {
		v.Primary = new(failureView)
		if primary != nil {
			v.Primary.Err = primary.Error()
			if !b.open.IsZero() { // it may be open since before the page
				v.Primary.At = b.open.Format(time.DateTime)
			}
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

// lately is for how long the page calls wrong what has failed and hasn't failed again. What lasts, such
// as an open breaker, is wrong until it ends.
const lately = time.Minute

// worst is the order in which failures are listed.
var worst = [...]stint.EventKind{stint.EventStoreFailed, stint.EventStoreDegraded, stint.EventSettleFailed, stint.EventSourceFailed,
	stint.EventLimitsFailed, stint.EventKeyFailed, stint.EventLeaseLost}

// problems lists what is wrong with a limiter, the worst first. The caller holds b.mu.
func (v *limiterView) problems(b *board) (all []problem) {
	add := func(p problem) {
		p.Limiter = v.Title
		all = append(all, p)
	}
	degraded := v.Primary != nil && v.Primary.Err != ""
	if degraded {
		add(problem{At: v.Primary.At, What: "the primary store is down", Text: v.Primary.Err + ". Each process counts by itself meanwhile."})
	}
	for _, kind := range worst {
		f := b.failures[kind]
		if f == nil || time.Since(f.at) >= lately || degraded && kind == stint.EventStoreDegraded {
			continue
		}
		p := problem{At: f.at.Format(time.DateTime), What: f.what, Text: f.err}
		switch kind {
		case stint.EventStoreDegraded:
			p.Text += ". Another store decided it."
		case stint.EventLeaseLost:
			p.What += ": " + strconv.Itoa(b.leases)
			p.Text = "slots are held whose lease is gone, so more requests may run than the limit says"
		}
		if f.limit != "" {
			p.Limits = []string{f.limit}
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

// denialsOf returns whom a limit has denied most lately, and why last.
func (p *page) denialsOf(b *board, l *limitView) (all []denialView) {
	for _, k := range l.Stopped {
		v := denialView{Limit: l.Name, DryRun: l.DryRun, Key: k.shownKey, AtLeast: k.AtLeast, AtMost: k.AtMost}
		if r, known := b.lastDenial(k.key, l.Name); known {
			rule := l.Text
			if l.Sourced { // of another key, maybe
				rule = ""
			}
			v.last(r, rule, l.ban)
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

// last sets what is known of the last denial.
func (v *denialView) last(r denial, rule string, ban bool) {
	v.At, v.Route, v.DryRun, v.RetryAfter = r.at.Format("15:04:05"), cmp.Or(r.route, "—"), r.dry, until(r.retryAfter)
	if v.Why = fmt.Sprintf("%d of %d left, %d needed", max(r.remaining, 0), r.of, r.cost); ban {
		v.Why = "it was banned"
	}
	if rule != "" {
		v.Why += ": " + rule
	}
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
	v.Denied += outcomes[keyDenied] + outcomes[limitsDenied]
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
	stint.EventSourceFailed:  "limits not read",
	keyDenied:                "denied by a key function",
	limitsDenied:             "denied by a limit function, as for no plan",
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
	var near [span]room
	func() {
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
			f.near.addTo(&near, now)
			stopped, admitted = append(stopped, f.stopped.Sketches(at)...), append(admitted, f.admitted.Sketches(at)...)
		}
		v.Stopped, v.Admitted = p.keys(topkeys.Top(shown, stopped...)), p.keys(topkeys.Top(shown, admitted...))
	}()
	v.Share = share(v.Denied, v.Allowed+v.Denied)
	v.Line = newChart(l.name+", requests a second", series{"allowed", "a", sums[allowed]}, series{"denied", "b", sums[denied]})
	v.recent(&sums, unfinished)
	v.binds()
	if !v.Rule && v.Binder != nil {
		v.plan(p, l.ruleOf(b, v.Binder.key))
	}
	v.Near = newSpark(l.name, v.unit(), v.most(d), &near, &sums[denied])
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
	case constant(k):
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

// reread is for how long a page shows a rule that a WithLimitSource has for a key before it asks again,
// and patience is how long it waits for it.
const reread, patience = 10 * time.Second, 100 * time.Millisecond

// ruleOf returns the rule that a WithLimitSource has for a key, as stores see it; or, if it doesn't
// answer, or has none for this key, the last one known of any key.
func (l *limit) ruleOf(b *board, key string) *sourced {
	last := l.sourced.Load()
	if last == nil {
		last = new(sourced)
	}
	if last.asked == key && time.Since(last.at) < reread || time.Since(b.unread) < reread {
		return last
	}
	raw, err := url.PathUnescape(key)
	if err != nil {
		return last
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rules, err := b.limiter.DescribeKey(ctx, raw)
	if err != nil {
		b.unread = time.Now()
		return last
	}
	now := &sourced{last.key, last.rule, key, time.Now()}
	if i := slices.IndexFunc(rules, func(r stint.Rule) bool { return r.Limit == l.name }); i >= 0 {
		now.key, now.rule = key, rules[i]
	}
	l.sourced.Store(now)
	return now
}

// plan describes a limit by the rule that one of its keys has.
func (v *limitView) plan(p *page, s *sourced) {
	if s.rule.Limit == "" {
		return
	}
	v.Sourced, v.OfKey, v.Text, v.DryRun, v.Key = true, p.shown(s.key), s.rule.Text, s.rule.DryRun, keyText(s.rule.Key)
	v.Slots, v.ban = s.rule.Spec.Algorithm == store.Concurrency, s.rule.Spec.Algorithm == store.Ban
}

// most returns how many units a key has that has used none, or 0 if each key has a number of its own.
func (v *limitView) most(d stint.Description) int64 {
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
			all = append(all, keyView{p.shown(c.Key), c.AtLeast, c.AtMost, c.Key})
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
