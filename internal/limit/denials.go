package limit

import (
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Numbers that are too small for the limit's callers show in how many keys it denies. Shares are
// no sign: one attacker makes nearly all requests, and nearly all denials.
//
// A key is admitted before it is denied, so keys are compared over a whole hour, and after that:
// judged earlier, or by the first thousand keys, a limit would be judged by its busiest callers.
// Keys that pass are looked at in that hour alone. It begins when a limit has denied many keys
// within an hour, and after one that has found nothing there is none for a day.
const (
	lookTime = time.Hour
	restTime = 24*time.Hour - lookTime
	// enough is how many bits of a few begin a look: those of about 83 keys, below the 91
	// that are 90 % of fewestKeys.
	enough = 80
	// fewestKeys is how many keys a limit is judged by.
	fewestKeys = 100
	// mostLooks bounds the memory of a process.
	mostLooks = 32
)

var seed = maphash.MakeSeed()

func hash(key string) uint64 { return maphash.String(seed, key) }

// Denials finds out whether a limit denies nearly all of its keys. It keeps none. It is safe for
// concurrent use, without a lock except where a look begins or ends. The zero Denials has seen
// nothing.
type Denials struct {
	few  atomic.Pointer[few] // nil if no key was denied within the hour
	look atomic.Pointer[look]
}

// Share is how many keys a limit has denied within an hour, of those that came. Both are
// estimates, within a few percent.
type Share struct{ Denied, Keys int }

// Looking reports whether a limit of the process looks at keys that pass, too.
func Looking() bool { return looks.n.Load() > 0 }

// See adds a key to the look, if there is one.
func (d *Denials) See(key string, denied bool) {
	if l := d.look.Load(); l != nil {
		l.add(hash(key), denied)
	}
}

// Deny adds a key that was denied. Once a look has found that nearly all are, it returns how many,
// to one caller.
func (d *Denials) Deny(key string) *Share {
	f := d.few.Load()
	if f == nil {
		f = new(few)
		if d.few.CompareAndSwap(nil, f) { // or another's is there, and the key isn't counted
			time.AfterFunc(lookTime, func() { d.few.CompareAndSwap(f, nil) })
		}
	}
	switch {
	case f.found != nil:
		if !f.told.Load() && !f.told.Swap(true) {
			return f.found
		}
	case f == resting:
		d.See(key, true)
	case f.add(hash(key)) && d.few.CompareAndSwap(f, resting):
		d.begin()
	}
	return nil
}

// few counts the keys that were denied, in a bit each. It isn't exact, and needn't be.
type few struct {
	bits  [16]atomic.Uint64
	n     atomic.Int32
	found *Share // what a look has found in the end; or nil
	told  atomic.Bool
}

// resting is in place of a limit's few during a look, and for a time afterwards.
var resting = new(few)

// add adds a key, and reports whether there are enough now.
func (f *few) add(h uint64) bool { return set(f.bits[:], h) && f.n.Add(1) == enough }

// set sets the bit of a hash. It reports whether it wasn't set.
func set(in []atomic.Uint64, h uint64) bool {
	word, bit := &in[h/64%uint64(len(in))], uint64(1)<<(h%64)
	return word.Load()&bit == 0 && word.Or(bit)&bit == 0
}

// begin begins a look. Only who has set d.few to resting calls it.
func (d *Denials) begin() {
	l := new(look)
	l.tally.Store(new(tally))
	looks.add(l)
	d.look.Store(l)
	time.AfterFunc(lookTime, func() { d.end(l) })
}

// end judges what a look has seen.
func (d *Denials) end(l *look) {
	looks.remove(l)
	if s := l.share(); s.Keys >= fewestKeys && s.Denied*10 > s.Keys*9 {
		d.few.Store(&few{found: &s})
	} else {
		time.AfterFunc(restTime, func() { d.few.CompareAndSwap(resting, nil) })
	}
	d.look.Store(nil)
}

// look is a look at all keys of a limit.
type look struct {
	tally atomic.Pointer[tally] // nil once the look is over, or has made room for another
}

func (l *look) add(h uint64, denied bool) {
	if t := l.tally.Load(); t != nil {
		t.add(h, denied)
	}
}

// share returns what the look has seen, and ends it.
func (l *look) share() Share {
	if t := l.tally.Swap(nil); t != nil {
		return t.share()
	}
	return Share{}
}

// tally counts keys in a bit each, and those that were denied in another. Half of the keys have
// their bit on the first level, half of the others on the second and so on: the first level that
// isn't too full, and those after it, have a random sample of all keys, large enough for any
// number of them.
type tally struct{ seen, denied [levels][words]atomic.Uint64 }

const (
	levels = 16
	words  = 64
)

func (t *tally) add(h uint64, denied bool) {
	level := min(bits.LeadingZeros64(h), levels-1)
	set(t.seen[level][:], h)
	if denied {
		set(t.denied[level][:], h)
	}
}

// share returns the share of the sample, for all keys.
func (t *tally) share() Share {
	seen, denied := 0.0, 0.0
	level := levels
	for level > 0 {
		n := ones(t.seen[level-1][:])
		if n > words*64*6/10 {
			break // so many keys have the same bits that the estimate is no good
		}
		level--
		seen += keysOf(n)
		denied += keysOf(ones(t.denied[level][:]))
	}
	all := func(sampled float64) int { return int(math.Round(math.Ldexp(sampled, level))) }
	return Share{all(denied), all(seen)}
}

func ones(in []atomic.Uint64) (n int) {
	for i := range in {
		n += bits.OnesCount64(in[i].Load())
	}
	return n
}

// keysOf returns how many keys are expected to set n bits of a level: some have the same.
func keysOf(n int) float64 {
	const all = words * 64
	return -all * math.Log1p(-float64(n)/all)
}

// looks are those of the process.
var looks list

// list has looks, the oldest first.
type list struct {
	mu  sync.Mutex
	all []*look
	n   atomic.Int32 // of all, for Looking
}

// add adds a look. If there are too many, the oldest ends without a result: its limit may have
// been dropped long ago, and its successors look for themselves.
func (s *list) add(l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == mostLooks {
		s.all[0].tally.Store(nil)
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, l)
	s.n.Store(int32(len(s.all)))
}

func (s *list) remove(l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(o *look) bool { return o == l })
	s.n.Store(int32(len(s.all)))
}
