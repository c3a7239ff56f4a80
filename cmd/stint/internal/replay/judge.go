package replay

import (
	"container/heap"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// judge decides requests of the past by the plans of a limiter, on a store of its own whose
// time it sets. Limits for which the log lacks data are left out of the plans.
type judge struct {
	says Says

	plans           read.Plans
	hosts           []string // of routes, if the log doesn't have the host
	fields          []string // header fields that the plans read
	peer            bool     // they read the peer
	unjudgedAlways  string   // why no request is judged, or ""
	unjudgedMethods map[string]string
	notes           []NotJudged

	reading read.Reading
	call    decide.Call
	backend decide.Backend
	store   *memory.Store
	now     time.Time // by which the store goes
	ends    ends
	hops    []chargedKey // for findAnyHops
}

func newJudge(l *stint.Limiter, says Says, c *config, predicates []keys.Reads, start time.Time) *judge {
	j := &judge{says: says, unjudgedMethods: map[string]string{}}
	j.now = start
	j.store = memory.New(memory.Config{MaxKeys: c.keys, Clock: func() time.Time { return j.now }})
	j.backend = decide.Backend{Store: j.store}
	j.reading.Init(&j.call, func(*read.Entry, string) bool { return false })
	j.reading.SetPlans(&j.plans)
	j.call.By(&j.backend)
	plans := plansOf(l)
	j.plans = plans.Map(j.judgeable)
	for _, p := range plans.Routes {
		if host := hostOf(p.Pattern); host != "" && !says.Host && !slices.Contains(j.hosts, host) {
			j.hosts = append(j.hosts, host)
		}
	}
	for i := range len(plans.Skip) + len(plans.Block) {
		reads := readsOf(predicates, i)
		why := j.missingFor(reads)
		if why == "" && says.OnlyLastHop && slices.Contains(reads.Fields, forwardedFor) {
			why = "the log doesn't have the header field " + forwardedFor // findAnyHops tries no address that is listed
		}
		switch {
		case why == "":
		case reads.Method != "":
			j.unjudgedMethods[reads.Method] = "it isn't known whether skip or block matches it: " + why
		default:
			j.unjudgedAlways = "it isn't known whether skip or block matches it: " + why
		}
	}
	return j
}

// plansOf returns the plans that a limiter decides requests by.
func plansOf(l *stint.Limiter) *read.Plans { return read.SealedPlans(l.Describe().Plans).Open() }

// KeyReads returns what the key of a limiter's first limit looks at.
func KeyReads(l *stint.Limiter) keys.Reads { return plansOf(l).Base.Entries[0].Key.Reads }

// HeaderReads returns the header fields that limiters' limits read.
func HeaderReads(l *stint.Limiter) (names []string) {
	for _, p := range plansOf(l).All() {
		for _, e := range p.Entries {
			names = append(names, e.Key.Reads.Fields...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readsOf returns what a predicate looks at: a function of the application, if it isn't listed.
func readsOf(predicates []keys.Reads, i int) keys.Reads {
	if i < len(predicates) {
		return predicates[i]
	}
	return keys.Reads{Function: true}
}

// hostOf returns the host of a route's pattern.
func hostOf(pattern string) string {
	if _, rest, ok := strings.Cut(pattern, " "); ok {
		pattern = strings.TrimLeft(rest, " \t")
	}
	host, _, _ := strings.Cut(pattern, "/")
	return host
}

// judgeable returns a plan with the entries for which the log has the data.
func (j *judge) judgeable(p *read.Plan) *read.Plan {
	var entries []*read.Entry
	unjudged := ""
	for _, e := range p.Entries {
		if why := j.whyNotJudged(e); why != "" {
			j.noteNotJudged(e.Name(), p.Pattern, why)
			if e.Kind.Traits().Counted {
				unjudged = e.Name()
			}
			continue
		}
		entries = append(entries, e)
	}
	if unjudged != "" { // a ban counts what others deny
		entries = slices.DeleteFunc(entries, func(e *read.Entry) bool {
			bans := e.Kind == limit.Banning
			if bans {
				j.noteNotJudged(e.Name(), p.Pattern, "it counts denials by limit "+unjudged+", which isn't judged")
			}
			return bans
		})
	}
	if len(p.Funcs) > 0 {
		j.noteNotJudged("", p.Pattern, "which limits a WithLimitFunc adds")
	}
	for _, e := range entries {
		j.fields = append(j.fields, e.Key.Reads.Fields...)
		j.peer = j.peer || e.Key.Reads.Peer
	}
	q := read.NewPlan(p.Pattern, entries, nil)
	q.Cost = p.Cost
	for _, e := range p.Declared {
		if slices.ContainsFunc(entries, func(o *read.Entry) bool { return o.StoreLimit == e.StoreLimit }) {
			q.Declared = append(q.Declared, e)
		}
	}
	return q
}

// noteNotJudged records why a limit isn't judged, or the limits of functions if name is "". It is recorded
// once for all routes.
func (j *judge) noteNotJudged(name, route, why string) {
	if slices.ContainsFunc(j.notes, func(n NotJudged) bool { return n.Limit == name && n.Why == why }) {
		return
	}
	j.notes = append(j.notes, NotJudged{Limit: name, Route: route, Why: why})
}

// whyNotJudged returns why a limit isn't judged, or "".
func (j *judge) whyNotJudged(e *read.Entry) string {
	switch why := j.missingFor(e.Key.Reads); {
	case why != "":
		return "its key: " + why
	case e.Cost != nil && e.Fixed == 0:
		return "a function of the application computes its cost"
	case e.Settler != nil && e.Settler.Cost(new(http.Request), http.StatusOK, 0) == UnknownCost:
		return "a function of the application computes its cost after the response"
	case e.Settler != nil && !j.says.Status:
		return "its cost depends on the status of the response, which the log doesn't have"
	}
	return j.whyUndecidable(&e.Limit)
}

// whyUndecidable returns why a limit isn't judged, whatever its requests are, or "".
func (j *judge) whyUndecidable(l *limit.Limit) string {
	switch {
	case l.Kind == limit.Adaptive:
		return "an adaptive limit follows the latency that the server would have had, which the log can't show"
	case l.Kind == limit.Bandwidth:
		return "a bandwidth limit delays bytes and denies nothing, and the log doesn't have the times of bytes"
	case l.Kind == limit.Concurrent && l.Wait.MaxWait > 0:
		return "its requests wait for slots, and the log can't show for how long"
	case l.Kind == limit.Concurrent && !j.says.Took:
		return "a slot is held until the request ends, and the log has no durations"
	}
	return ""
}

// missingFor returns the data that the log lacks, of those that are read of a request, or "".
func (j *judge) missingFor(r keys.Reads) string {
	for _, name := range r.Fields {
		if !slices.Contains(j.says.Fields, name) {
			return "the log doesn't have the header field " + name
		}
	}
	switch {
	case r.Given:
		return "requests don't have a GivenKey"
	case r.Router:
		return "the log doesn't have the route that the application's router matched"
	case r.Function:
		return "a function of the application computes it"
	case r.Peer && !j.says.Peer:
		return "the log doesn't have the address that a request was sent from"
	case r.Host && !j.says.Host:
		return "the log doesn't have the requests' host"
	}
	return ""
}

// verdict is a judge's answer for a request. The charges and results are the judge's call.
type verdict struct {
	unjudged string // why not, or ""
	limited  bool   // a limit or a WithBlock applies to it
	denied   bool
	deniedBy int    // the charge that has denied it with the longest wait, or -1
	reason   string // of a denial that is not by a limit
	wait     time.Duration
	route    string
}

// decide decides a request that arrived at an instant.
func (j *judge) decide(at time.Time, logged *Request, r *http.Request) verdict {
	j.settle(at)
	j.now = at
	v, charged := j.charges(logged, r)
	if charged {
		j.decideCharges(at, logged, r, &v)
	}
	return v
}

// charges adds the charges of a request to the call, before they are decided, or returns why it isn't judged.
// charged is false if there are none.
func (j *judge) charges(logged *Request, r *http.Request) (v verdict, charged bool) {
	if j.says.OnlyLastHop {
		return j.findAnyHops(logged, r)
	}
	return j.findCharges(logged, r)
}

// findCharges adds the charges of a request to the call: see charges.
func (j *judge) findCharges(logged *Request, r *http.Request) (v verdict, charged bool) {
	v.deniedBy = -1
	if v.unjudged = j.unjudgedAlways; v.unjudged == "" && len(j.unjudgedMethods) > 0 {
		v.unjudged = j.unjudgedMethods[logged.Method]
	}
	if v.unjudged != "" {
		return v, false
	}
	if len(j.plans.Skip)+len(j.plans.Block) > 0 {
		exempt, blocked := j.plans.SkipOrBlock(r)
		if exempt {
			return v, false
		}
		if blocked {
			v.limited, v.denied, v.reason = true, true, "blocked"
			return v, false
		}
	}
	p := j.plans.Base
	if j.plans.Router != nil {
		p = j.plans.Find(r)
		if !j.sameForAnyHost(p, r) {
			v.unjudged = "its route depends on the host, which the log doesn't have"
			return v, false
		}
	}
	j.reading.End()
	j.call.Reset()
	j.reading.Begin(r, false)
	v.route = p.Pattern
	if err := j.reading.Request(p); err != nil {
		v.limited, v.denied = true, true
		v.reason = reasons[j.reading.Failures[len(j.reading.Failures)-1].Kind] // the last is why
		j.call.Reset()                                                         // nothing was charged
		return v, false
	}
	if len(j.call.Charges) == 0 {
		return v, false
	}
	v.limited = true
	return v, true
}

// reasons are the reasons of denials that are not by a limit.
var reasons = [...]string{
	read.KeyFailed: "key can't be determined", read.EmptyKey: "empty key", read.DryRunDenied: "dry run",
}

// sameForAnyHost reports whether a request has the plan whatever its host is.
func (j *judge) sameForAnyHost(p *read.Plan, r *http.Request) bool {
	defer func(host string) { r.Host = host }(r.Host)
	for _, host := range j.hosts {
		if r.Host = host; j.plans.Find(r).Pattern != p.Pattern {
			return false
		}
	}
	return true
}

// decideCharges decides the charges of a request, and plans the settlements at its end if it is granted.
func (j *judge) decideCharges(at time.Time, logged *Request, r *http.Request, v *verdict) {
	c := &j.call
	for i := range c.Charges {
		if c.Limits[i].Kind == limit.Charged { // others wait for nothing here
			c.Charges[i].MaxWait = c.Limits[i].Wait.MaxWait
		}
	}
	if err := j.store.Take(context.Background(), c.Charges, c.Results); err != nil {
		panic(err) // a limiter makes no malformed call, and this store never fails
	}
	granted := inside.Granted(c.Charges, c.Results)
	retry := time.Duration(-1)
	for i := range c.Results {
		switch result := &c.Results[i]; {
		case c.Charges[i].DryRun:
		case granted:
			v.wait = max(v.wait, result.Delay)
		case !result.OK && result.RetryAfter > retry:
			v.deniedBy, retry = i, result.RetryAfter
		}
	}
	if v.denied = !granted; granted && c.Needs&limit.Releases != 0 {
		j.planSettlements(at.Add(v.wait+max(logged.Took, 0)), logged, r)
	}
}

// planSettlements has the slots of a granted request released, and the charges whose cost depends on the
// response settled, when the request ends.
func (j *judge) planSettlements(end time.Time, logged *Request, r *http.Request) {
	c := &j.call
	settlers := j.reading.Settlers()
	var settlements []store.Charge
	for i := range c.Charges {
		ch := store.Charge{Key: c.Charges[i].Key, Limit: c.Charges[i].Limit, DryRun: c.Charges[i].DryRun,
			Receipt: c.Results[i].Receipt}
		if ch.Receipt.Cost <= 0 {
			continue
		}
		switch {
		case c.Limits[i].Kind == limit.Concurrent:
		case settlers != nil && settlers[i] != nil:
			cost := settlers[i].Cost(r, logged.Status, logged.Written)
			if cost < 0 || cost > store.MaxCost || cost == c.Charges[i].Cost || c.Limits[i].NoRefund &&
				cost < c.Charges[i].Cost {
				continue
			}
			ch.Cost = cost
		default:
			continue
		}
		settlements = append(settlements, ch)
	}
	if settlements != nil {
		heap.Push(&j.ends, ending{end, settlements})
	}
}

// settle settles the charges of the requests that have ended by an instant. A request that arrives at
// that instant finds their slots free.
func (j *judge) settle(at time.Time) {
	for len(j.ends) > 0 && !j.ends[0].at.After(at) {
		e := heap.Pop(&j.ends).(ending)
		j.now = e.at
		if err := j.store.Settle(context.Background(), e.charges, make([]store.Result, len(e.charges))); err != nil {
			panic(err)
		}
	}
}

// ending is the end of a request, and its charges at their final cost.
type ending struct {
	at      time.Time
	charges []store.Charge
}

// ends is a heap of them, the next first.
type ends []ending

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(ending)) }
func (e *ends) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = ending{}
	*e = (*e)[:last]
	return x
}

// builder makes an http.Request of a logged one.
type builder struct {
	says   Says
	fields []int // of says.Fields, those that limits read
	peer   bool  // limits read it

	request http.Request
	url     url.URL
	header  http.Header
	values  []string
}

func newBuilder(says Says, judges ...*judge) *builder {
	m := &builder{says: says, values: make([]string, len(says.Fields)), header: http.Header{}}
	readsAll := false
	for _, j := range judges {
		readsAll = readsAll || len(j.plans.Skip)+len(j.plans.Block) > 0
		m.peer = says.Peer && (m.peer || readsAll || j.peer)
	}
	for i, name := range says.Fields {
		read := readsAll
		for _, j := range judges {
			read = read || slices.Contains(j.fields, name)
		}
		if read {
			m.fields = append(m.fields, i)
		}
	}
	return m
}

// Why a request isn't judged, whatever its limits are.
const (
	unreadableTarget = "its target isn't a valid path, so no handler has seen it"
	noAddress        = "its peer isn't an address"
	// Caddy and others write it for values that they hide.
	redacted = "REDACTED"
)

// build returns the request, or why it isn't judged.
func (m *builder) build(logged *Request) (_ *http.Request, why string) {
	if m.peer && !isAddress(logged.Peer) {
		return nil, noAddress
	}
	u, host := &m.url, logged.Host
	switch t := logged.Target; {
	case t[0] == '/' && strings.IndexByte(t, '%') < 0:
		*u = url.URL{}
		u.Path, u.RawQuery, _ = strings.Cut(t, "?")
	case logged.Method == http.MethodConnect && t[0] != '/':
		*u = url.URL{Host: t}
		host = t
	default:
		parsed, err := url.ParseRequestURI(t)
		if err != nil {
			return nil, unreadableTarget
		}
		if u = parsed; u.Host != "" {
			host = u.Host
		}
	}
	for _, i := range m.fields {
		name := m.says.Fields[i]
		switch m.values[i] = strings.Clone(logged.Fields[i]); m.values[i] { // as a key, it must not keep its line
		case "":
			delete(m.header, name)
		case redacted:
			return nil, "the log hides its header field " + name + ": " + redacted
		default:
			m.header[name] = m.values[i : i+1 : i+1]
		}
	}
	m.request = http.Request{Method: logged.Method, URL: u, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: m.header, Host: host, RemoteAddr: logged.Peer, RequestURI: logged.Target, Body: http.NoBody}
	return &m.request, ""
}
