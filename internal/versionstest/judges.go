package versionstest

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/stint-go/stint/store"
)

const ms = time.Millisecond

var kinds = []kind{
	{of: store.TokenBucket, most: 5, spec: bucketSpec, judge: newBuckets},
	{of: store.LeakyBucket, most: 5, spec: bucketSpec, judge: newBuckets},
	{of: store.IntervalBucket, most: 4, spec: intervalSpec, judge: newIntervals, oneOrOther: true},
	{of: store.FixedWindow, most: 4, spec: windowSpec, judge: newWindows},
	{of: store.SlidingWindow, most: 4, spec: partsSpec, judge: newRecords},
	{of: store.SlidingLog, most: 4, spec: windowSpec, judge: newRecords},
	{of: store.SlidingCounter, most: 4, spec: windowSpec, judge: newCounters},
	{of: store.WarmUp, most: 4, spec: warmUpSpec, judge: newWarmUps},
	{of: store.Concurrency, most: 4, spec: slotsSpec, judge: newSlots},
	{of: store.Ban, most: 4, spec: banSpec, judge: newBans},
}

func (p *trace) anyPeriod() time.Duration {
	return oneOf(p.dice, time.Second, 20*time.Second, time.Minute, 1100*ms, 7*ms, time.Hour)
}

func (p *trace) units() int64 { return oneOf[int64](p.dice, 1, 2, 3, 5, 10, 100) }

func windowSpec(p *trace) store.Spec { return store.Spec{Units: p.units(), Period: p.anyPeriod()} }

func partsSpec(p *trace) store.Spec {
	s := windowSpec(p)
	s.Buckets = oneOf[int64](p.dice, 1, 2, 5, 10)
	return s
}

func bucketSpec(p *trace) store.Spec {
	s := store.Spec{Units: oneOf[int64](p.dice, 1, 3, 10, 1000), Burst: oneOf[int64](p.dice, 1, 2, 10, 300),
		Period: oneOf(p.dice, 100*ms, time.Second, 7*time.Second, time.Minute, 10*time.Minute)}
	if p.turns {
		s.Queue = oneOf[int64](p.dice, 0, 0, 3)
	} else if p.kind.of == store.LeakyBucket {
		s.Queue = store.None
	}
	return s
}

func intervalSpec(p *trace) store.Spec {
	return store.Spec{Units: p.units(), Burst: p.units(), Period: oneOf(p.dice, p.common, p.common, p.anyPeriod())}
}

func warmUpSpec(p *trace) store.Spec {
	s := windowSpec(p)
	s.WarmUp = oneOf(p.dice, time.Second, 10*time.Second, 100*ms)
	return s
}

func slotsSpec(p *trace) store.Spec { return store.Spec{Units: 1 + p.roll(10)} }

func banSpec(p *trace) store.Spec {
	return store.Spec{Units: oneOf[int64](p.dice, 1, 2, 3, 5, 10), Period: p.anyPeriod(), Ban: oneOf(p.dice, time.Second, time.Hour)}
}

// flows returns how many units of s come in span microseconds.
func flows(s store.Spec, span int64) int64 {
	high, low := bits.Mul64(uint64(s.Units), uint64(span))
	n, _ := bits.Div64(high, low, uint64(s.Period.Microseconds()))
	return int64(n)
}

// Buckets: of one version no more passes in any span than by itself, of all no more than
// the largest burst and the fastest rate let pass; and one more burst for each return of a
// version that hadn't charged for as long as it takes to fill, an hour at most. A turn
// counts for other versions from when it is reserved. Of five, one has no view of its own,
// and only what passes in all is bounded.
type buckets struct {
	refunding
	last    []int64 // when a version last charged
	largest int64   // the largest burst
	fastest store.Spec
	ahead   int64 // the most units that waited for their turns at one instant
}

func newBuckets(p *trace) judge {
	b := &buckets{refunding: refunding{p}, last: make([]int64, len(p.specs)), fastest: p.specs[0]}
	for v, s := range p.specs {
		b.last[v] = math.MinInt64 / 2
		b.largest = max(b.largest, atOnce(s))
		if flows(s, years) > flows(b.fastest, years) {
			b.fastest = s
		}
	}
	return b
}

func isBucket(a store.Algorithm) bool {
	return a == store.TokenBucket || a == store.LeakyBucket || a == store.IntervalBucket
}

// atOnce is the size of a bucket.
func atOnce(s store.Spec) int64 {
	if s.Algorithm == store.LeakyBucket {
		return max(s.Burst, 0) + 1
	}
	return s.Burst
}

func (b *buckets) answered(q request, r store.Result) error {
	s, viewed := b.specs[q.by], len(b.specs) < 5
	if q.cost > 0 && q.cost <= atOnce(s) && !r.OK && !b.turns && !b.raises && viewed {
		// Others overdraw no view: what is missing comes as fast as by itself.
		if most := micros(q.cost*s.Period.Microseconds()/s.Units) + time.Millisecond; r.RetryAfter > most {
			return fmt.Errorf("version %d is to wait %v for %d units, which come in %v", q.by, r.RetryAfter, q.cost, most)
		}
	}
	if q.cost == 0 || !r.OK {
		return nil
	}
	fills := min(atOnce(s)*s.Period.Microseconds()/s.Units, time.Hour.Microseconds())
	b.latest().came = q.at-b.last[q.by] >= fills
	b.last[q.by] = q.at
	waiting := int64(0)
	for _, a := range b.passed {
		if a.run > q.at {
			waiting += a.cost
		}
	}
	b.ahead = max(b.ahead, waiting)
	late := int64(0)
	if b.turns {
		late = b.limits[q.by].Tick().Microseconds() // turns are rounded up
	}
	return b.spans(func(in span) error {
		if most := atOnce(s)*(1+in.came[q.by]) + flows(s, in.length()+late); viewed && in.passed[q.by] > most {
			return in.tooMany(most, "version %d", q.by)
		}
		most := b.largest*(1+sum(in.came)) + flows(b.fastest, in.length())
		if b.turns {
			most += b.ahead
		}
		if sum(in.passed) > most {
			return in.tooMany(most, "all")
		}
		return nil
	})
}

// Intervals: of one version no more passes in any span than by itself, and of those of one
// period no more than the largest burst and the most tokens of them let pass; and one more
// burst for each return of a version that hadn't charged for as long as it takes to fill.
type intervals struct {
	refunding
	last []int64 // when a version last charged
}

func newIntervals(p *trace) judge {
	j := intervals{refunding{p}, make([]int64, len(p.specs))}
	for v := range j.last {
		j.last[v] = math.MinInt64 / 2
	}
	return j
}

func (j intervals) answered(q request, r store.Result) error {
	if q.cost == 0 || !r.OK {
		return nil
	}
	own := j.specs[q.by]
	burst, units := int64(0), int64(0)
	for _, s := range j.specs {
		if s.Period == own.Period {
			burst, units = max(burst, s.Burst), max(units, s.Units)
		}
	}
	j.latest().came = q.at-j.last[q.by] >= j.period(q.by) // or longer: then it counts too often
	j.last[q.by] = q.at
	return j.spans(func(in span) error {
		ends := in.length()/j.period(q.by) + 1
		if most := own.Burst + ends*own.Units; in.passed[q.by] > most {
			return in.tooMany(most, "version %d", q.by)
		}
		together, returns := int64(0), int64(0)
		for v, n := range in.passed {
			if j.specs[v].Period == own.Period {
				together += n
				returns += in.came[v]
			}
		}
		if most := burst*(1+returns) + ends*units; !j.turns && together > most {
			return in.tooMany(most, "versions of %v", own.Period)
		}
		return nil
	})
}

// Windows: of one version no more passes than in each of its windows that the span touches.
// Of a turn reserved in a later window, only that as many pass in all as all versions let.
type windows struct{ refunding }

func newWindows(p *trace) judge { return windows{refunding{p}} }

func (j windows) answered(q request, r store.Result) error {
	if q.cost == 0 || !r.OK {
		return nil
	}
	return j.spans(func(in span) error {
		together := int64(0)
		for v, s := range j.specs {
			most := s.Units * (in.length()/j.period(v) + 2)
			if together += most; v == q.by && !j.turns && in.passed[v] > most {
				return in.tooMany(most, "version %d", v)
			}
		}
		if sum(in.passed) > together {
			return in.tooMany(together, "all")
		}
		return nil
	})
}

// Records: a version counts what has passed by any version in its own span, since it was
// known: since its first charge after its earlier ones had stopped counting.
type records struct {
	*trace
	joined []int // how many had passed when a version became known
	last   []int64
}

func newRecords(p *trace) judge {
	j := &records{p, make([]int, len(p.specs)), make([]int64, len(p.specs))}
	for v := range j.last {
		j.last[v] = math.MinInt64 / 2
	}
	return j
}

// counts reports whether a version at at still counts what ran at run.
func (j *records) counts(v int, run, at int64) bool {
	s := j.specs[v]
	if s.Algorithm != store.SlidingWindow {
		return run > at-j.period(v)
	}
	part := func(at int64) int64 { return floorTo(at, j.tick(v)) * s.Buckets / s.Period.Microseconds() }
	return part(run) > part(at)-s.Buckets
}

// known is for how long at least a version is known after its charge.
func (j *records) known(v int) int64 {
	s := j.specs[v]
	if s.Algorithm != store.SlidingWindow {
		return s.Period.Microseconds()
	}
	return s.Period.Microseconds() - s.Period.Microseconds()/s.Buckets - j.tick(v)
}

func (j *records) tick(v int) int64 { return j.limits[v].Tick().Microseconds() }

func floorTo(at, tick int64) int64 { return at / tick * tick }

func (j *records) answered(q request, r store.Result) error {
	if q.cost == 0 {
		return nil
	}
	v, n, others := q.by, j.specs[q.by].Units, j.passed
	if r.OK {
		others = others[:len(others)-1]
	}
	run := q.at + r.Delay.Microseconds()
	ends := j.last[v] + j.known(v) // it is known until then
	counted := int64(0)
	for i, a := range others {
		if !r.OK && j.counts(v, a.run, q.at) || r.OK && i >= j.joined[v] && q.at < ends && j.counts(v, a.run, run) {
			counted += a.cost
		}
	}
	switch {
	case r.OK:
		if q.at >= ends {
			j.joined[v] = len(others)
		}
		if j.last[v] = max(j.last[v], q.at); counted+q.cost > n {
			return fmt.Errorf("%d and %d more where %d may, since charge %d", counted, q.cost, n, j.joined[v])
		}
	case !j.turns && counted+q.cost <= n:
		return fmt.Errorf("denied where %d of %d are used", counted, n)
	}
	return nil
}

// settled: a charge that counts no more for its own version still counts for others. It is
// dated at a turn that has been reserved before, if that is later.
func (j *records) settled(a *passed, cost int64) {
	if !j.counts(a.by, a.receipt.Instant, j.Now()) {
		return
	}
	a.cost, j.last[a.by] = cost, math.MinInt64/2
	for _, b := range j.passed {
		if b.by == a.by && b.cost > 0 {
			j.last[a.by] = max(j.last[a.by], b.made)
		}
	}
}

// Counters: of one version no more passes in any span than by itself, and of all no more
// than those that have charged in it let pass together.
type counters struct{ refunding }

func newCounters(p *trace) judge { return counters{refunding{p}} }

func (j counters) answered(q request, r store.Result) error {
	if q.cost == 0 || !r.OK {
		return nil
	}
	return j.spans(func(in span) error {
		together := int64(0)
		for v, s := range j.specs {
			most := s.Units + flows(s, in.length())
			if v == q.by && in.passed[v] > most {
				return in.tooMany(most, "version %d", v)
			}
			if in.passed[v] > 0 {
				together += most
			}
		}
		if sum(in.passed) > together {
			return in.tooMany(together, "all")
		}
		return nil
	})
}

// Warm-ups: each charge but the last has been paid for in the span, at the full rate of its
// version.
type warmUps struct{ refunding }

func newWarmUps(p *trace) judge { return warmUps{refunding{p}} }

func (j warmUps) answered(q request, r store.Result) error {
	if q.cost == 0 || !r.OK {
		return nil
	}
	latest := len(j.passed) - 1
	paid, to := int64(0), j.passed[latest].run
	for i := latest - 1; i >= 0; i-- {
		a := j.passed[i]
		s := j.specs[a.by]
		paid += a.cost * s.Period.Microseconds() / s.Units
		if a.cost == 0 {
			continue
		}
		if slack := int64(latest-i) * 1000; a.run+paid > to+slack {
			return fmt.Errorf("what passes in [%d, %d) takes %v", a.run, to, micros(paid))
		}
	}
	return nil
}

// Slots: a version lets pass what leaves no more held than it has, and nothing else.
type slots struct{ refunding }

func newSlots(p *trace) judge { return slots{refunding{p}} }

func (j slots) answered(q request, r store.Result) error {
	held := int64(0)
	for _, a := range j.passed {
		held += a.cost
	}
	if !r.OK {
		held += q.cost
	}
	if q.cost > 0 && r.OK != (held <= j.specs[q.by].Units) {
		return fmt.Errorf("%d of %d slots held", held, j.specs[q.by].Units)
	}
	return nil
}

// Bans: a version begins a ban at the denial that is the n-th in its own span, whichever
// version they were counted by: never sooner, and not later while it is known.
type bans struct {
	refunding
	denials []int64
	joined  []int // how many denials there were when a version became known
	last    []int64
	until   int64 // the end of the last ban
}

func newBans(p *trace) judge {
	j := &bans{refunding: refunding{p}, joined: make([]int, len(p.specs)), last: make([]int64, len(p.specs))}
	j.begin(math.MinInt64 / 2)
	return j
}

func (j *bans) begin(until int64) {
	j.denials, j.until = nil, until
	for v := range j.last {
		j.last[v] = math.MinInt64 / 2
	}
}

func (j *bans) answered(q request, r store.Result) error {
	v, n, span := q.by, j.specs[q.by].Units, j.period(q.by)
	if q.at < j.until || q.cost == 0 {
		if banned := q.at < j.until && q.cost > 0; r.OK == banned {
			return fmt.Errorf("the last ban ends at %d", j.until)
		}
		return nil
	}
	if q.at >= j.last[v]+span {
		j.joined[v] = len(j.denials)
	}
	j.denials, j.last[v] = append(j.denials, q.at), q.at
	every, known := int64(0), int64(0)
	for i, at := range j.denials {
		if at > q.at-span {
			if every++; i >= j.joined[v] {
				known++
			}
		}
	}
	if r.Begun && every < n || !r.Begun && known >= n || r.Begun == r.OK {
		return fmt.Errorf("a ban began: %v, after %d denials, %d of them while it was known", r.Begun, every, known)
	}
	if r.Begun {
		j.counted++
		j.begin(q.at + j.specs[v].Ban.Microseconds())
	}
	return nil
}
