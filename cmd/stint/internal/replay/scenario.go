package replay

import (
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// scenario counts what would have happened under one interpretation of the log's times.
type scenario struct {
	name    string
	judge   *judge
	against *judge // of the limiter that is in force, or nil

	count    Count
	exempt   int64
	unjudged map[string]int64
	reasons  map[string]int64
	longest  time.Duration
	failed   int64
	routes   map[string]*Count
	classes  [10]Count
	limits   []*limitUse
	byLimit  map[*store.Limit]*limitUse
	timeline timeline
	flips    flips
}

func newScenario(name string, l, against *stint.Limiter, c *config, says Says, start time.Time) *scenario {
	start = start.Truncate(time.Second)
	s := &scenario{name: name, judge: newJudge(l, says, c, c.predicates, start),
		unjudged: map[string]int64{}, reasons: map[string]int64{}, routes: map[string]*Count{},
		byLimit: map[*store.Limit]*limitUse{}, timeline: timeline{start: start.UnixNano(), step: int64(time.Second)},
		flips: flips{keys: map[flipKey]*Flip{}}}
	if against != nil {
		s.against = newJudge(against, says, c, c.before, start)
	}
	return s
}

// decide decides a request, and counts the outcome.
func (s *scenario) decide(at time.Time, logged *Request, r *http.Request, why string) error {
	if r == nil {
		s.unjudged[why]++
		if s.against != nil {
			s.flips.unjudged++
		}
		return nil
	}
	v := s.judge.decide(at, logged, r)
	if s.against != nil {
		before := s.against.decide(at, logged, r)
		s.countFlip(&v, &before)
	}
	if v.unjudged != "" {
		s.unjudged[v.unjudged]++
		return nil
	}
	nanos := at.UnixNano()
	waited := v.wait > 0
	s.count.add(v.denied, waited)
	s.longest = max(s.longest, v.wait)
	s.classes[min(max(logged.Status/100, 0), 9)].add(v.denied, waited)
	if v.denied && logged.Status/100 == 5 {
		s.failed++
	}
	route := s.routes[v.route]
	if route == nil {
		route = new(Count)
		s.routes[v.route] = route
	}
	route.add(v.denied, waited)
	if !v.limited {
		s.exempt++
	}
	deniedBy := -1
	if v.reason != "" {
		s.reasons[v.reason]++
	} else if v.limited {
		deniedBy = s.countCharges(nanos, &v)
	}
	s.timeline.add(nanos, v.denied, deniedBy)
	return nil
}

// countFlip counts a request that the limiter in force decides otherwise.
func (s *scenario) countFlip(v, before *verdict) {
	switch {
	case v.unjudged != "" || before.unjudged != "":
		s.flips.unjudged++
	case v.denied && !before.denied:
		name, key := s.judge.deniedBy(v)
		s.flips.add(true, name, key)
	case !v.denied && before.denied:
		name, key := s.against.deniedBy(before)
		s.flips.add(false, name, key)
	}
}

// countCharges counts the charges of a request, and returns the number of the limit that has denied
// it, or -1.
func (s *scenario) countCharges(nanos int64, v *verdict) (deniedBy int) {
	deniedBy = -1
	c := &s.judge.call
	for i := range c.Charges {
		ch, r := &c.Charges[i], &c.Results[i]
		l := s.byLimit[ch.Limit]
		if l == nil {
			l = &limitUse{number: len(s.limits), name: ch.Limit.Name(), dryRun: ch.DryRun, capacity: s.judge.capacity(ch.Limit),
				live: map[string]*keyUse{}, denied: map[string]*keyUse{}, maxLive: firstSweep}
			s.byLimit[ch.Limit] = l
			s.limits = append(s.limits, l)
		}
		l.add(nanos, ch.Key, r, v.denied && !ch.DryRun)
		if i == v.deniedBy {
			deniedBy = l.number
		}
	}
	return deniedBy
}

func (c *Count) add(denied, waited bool) {
	c.Requests++
	if denied {
		c.Denied++
	}
	if waited {
		c.Waited++
	}
}

// statuses returns the counts by class of status.
func (s *scenario) statuses() map[string]*Count {
	all := map[string]*Count{}
	for i := range s.classes {
		if c := s.classes[i]; c.Requests > 0 {
			name := ""
			if i > 0 {
				name = strconv.Itoa(i) + "xx"
			}
			all[name] = &c
		}
	}
	return all
}

// limitUse is the use of a limit.
type limitUse struct {
	number   int
	name     string
	dryRun   bool
	capacity int64 // units left when unused
	count    Count
	keys     int64
	peak     uint8
	use      [12]int64
	live     map[string]*keyUse
	denied   map[string]*keyUse // of keys that are no longer live, those that were denied
	dropped  int64              // of them, for which there was no room
	maxLive  int                // how many live keys there may be before some are flushed
}

// keyUse is the use of a limit by a key.
type keyUse struct {
	count       Count
	peak        uint8 // percent; beyond for a denial
	until       int64 // when it will be as if never used
	first, last int64 // denials
	heldUntil   int64
	held        time.Duration
}

const (
	firstSweep = 1 << 16
	// mostDenied is how many keys are kept that are no longer in use, because they were
	// denied.
	mostDenied = 1 << 17
	deniedPeak = 101
)

// add counts a charge. requestDenied says that the request is denied, perhaps by another limit.
func (l *limitUse) add(now int64, key string, r *store.Result, requestDenied bool) {
	k := l.live[key]
	if k == nil {
		if len(l.live) >= l.maxLive {
			l.flush(func(k *keyUse) bool { return k.until < now })
			l.maxLive = max(firstSweep, 2*len(l.live))
		}
		k = new(keyUse)
		l.live[key] = k
		l.keys++
	}
	l.count.Requests++
	k.count.Requests++
	k.until = max(k.until, now+int64(min(max(r.ResetAfter, 0), 1<<61)))
	use := uint8(100)
	if !r.OK {
		use = deniedPeak
		l.count.Denied++
		if k.count.Denied++; k.first == 0 {
			k.first = now
		}
		k.last = now
		retry := r.RetryAfter
		if retry == store.Never {
			retry = 0 // that cost never passes; others may
		}
		end := now + int64(max(retry, 0))
		k.held += time.Duration(max(0, end-max(now, k.heldUntil)))
		k.heldUntil = max(k.heldUntil, end)
		k.until = max(k.until, end)
	} else {
		if r.Delay > 0 && !requestDenied {
			l.count.Waited++
			k.count.Waited++
		}
		if l.capacity > 0 {
			use = uint8(min(max((l.capacity-r.Remaining)*100/l.capacity, 0), 100))
		}
	}
	k.peak = max(k.peak, use)
	l.peak = max(l.peak, use)
}

// flush counts the keys for which over returns true, and forgets them, but for those that were
// denied.
func (l *limitUse) flush(over func(*keyUse) bool) {
	for key, k := range l.live {
		if !over(k) {
			continue
		}
		delete(l.live, key)
		l.use[bin(k.peak)]++
		if k.count.Denied == 0 {
			continue
		}
		switch before := l.denied[key]; {
		case before != nil:
			before.merge(k)
		case len(l.denied) < mostDenied:
			l.denied[key] = k
		default:
			l.dropped++
		}
	}
}

func bin(peak uint8) int {
	if peak >= deniedPeak {
		return 11
	}
	return int(peak / 10)
}

func (k *keyUse) merge(o *keyUse) {
	k.count.Requests += o.count.Requests
	k.count.Denied += o.count.Denied
	k.count.Waited += o.count.Waited
	k.last, k.held = o.last, k.held+o.held
}

// timeline counts over time, in slots that become longer when there are too many of them.
type timeline struct {
	start, step int64
	slots       []Slot
}

const mostSlots = 400

func (t *timeline) add(now int64, denied bool, by int) {
	i := max(int((now-t.start)/t.step), 0)
	for i >= mostSlots {
		t.doubleStep()
		i = max(int((now-t.start)/t.step), 0)
	}
	for i >= len(t.slots) {
		t.slots = append(t.slots, Slot{Denied: []int64{0}}) // the first is for other reasons
	}
	s := &t.slots[i]
	s.Requests++
	if !denied {
		return
	}
	for by+1 >= len(s.Denied) {
		s.Denied = append(s.Denied, 0)
	}
	s.Denied[by+1]++
}

// doubleStep doubles the length of slots: it merges each two into one.
func (t *timeline) doubleStep() {
	t.step *= 2
	for i := range t.slots {
		if i%2 == 0 {
			t.slots[i/2] = t.slots[i]
			continue
		}
		to := &t.slots[i/2]
		to.Requests += t.slots[i].Requests
		for n, denied := range t.slots[i].Denied {
			for n >= len(to.Denied) {
				to.Denied = append(to.Denied, 0)
			}
			to.Denied[n] += denied
		}
	}
	t.slots = t.slots[:(len(t.slots)+1)/2]
}

// report returns the timeline, with the counts of other reasons last, as many as there are limits.
func (t *timeline) report(limits int) Timeline {
	out := Timeline{Start: instant(t.start), Step: time.Duration(t.step).Seconds()}
	for _, s := range t.slots {
		denied := make([]int64, limits+1)
		copy(denied, s.Denied[1:])
		denied[limits] = s.Denied[0]
		out.Slots = append(out.Slots, Slot{s.Requests, denied})
	}
	return out
}
