package store

import (
	"slices"
	"sort"

	"github.com/stint-go/stint/internal/engine"
)

// mostVersions is how many versions a state tells apart. If there are more, the two with
// the shortest spans count as one with the longer.
const mostVersions = 4

// mostKept is the most units that are kept. The oldest entries beyond it can't matter:
// no version lets nearly as much pass.
const mostKept = 1 << 52

// manyEntries is how many entries of several versions are kept as they are. Of more, those
// that no version tells apart become one, and refunds no longer find the others.
const manyEntries = 1024

// keeper is a version as a state's entries need it.
type keeper struct {
	slide
	engine.Version
	until int64 // when the latest of its charges stops counting for it
}

// keepers are the versions that keep the entries of a state.
type keepers struct {
	list [mostVersions + 1]keeper
	n    int
}

func (k *keepers) all() []keeper { return k.list[:k.n] }

func (k *keepers) index(n engine.Numbers) int {
	return slices.IndexFunc(k.all(), func(v keeper) bool { return v.Numbers == n })
}

func (k *keepers) add(n engine.Numbers, at int64) {
	d := slideOf(n)
	k.list[k.n] = keeper{d, engine.Version{Numbers: n, At: at}, d.leaves(at)}
	k.n++
}

func (s *state) keepers() (k keepers) {
	if s.Rest == nil {
		k.add(s.Numbers, s.A)
		return k
	}
	for _, v := range s.Rest.Versions {
		k.add(v.Numbers, v.At)
	}
	return k
}

// put makes the keepers those of s.
func (s *state) put(k *keepers) {
	s.Numbers, s.Rest = k.list[0].Numbers, nil
	if k.n > 1 {
		s.Rest = &engine.Rest{Versions: make([]engine.Version, k.n)}
		for i, v := range k.all() {
			s.Rest.Versions[i] = v.Version
		}
	}
}

// forgotten returns when nothing is kept any more.
func (k *keepers) forgotten() int64 {
	last := k.list[0].until
	for _, v := range k.list[1:k.n] {
		last = max(last, v.until)
	}
	return last
}

// gone returns when what was entered at at is kept no longer: each version keeps it
// while it counts, and while the version's own charges do.
func (k *keepers) gone(at int64) int64 {
	gone := min(k.list[0].leaves(at), k.list[0].until)
	for _, v := range k.list[1:k.n] {
		gone = max(gone, min(v.leaves(at), v.until))
	}
	return gone
}

// entered returns the instant at which a charge made at at is entered.
func (k *keepers) entered(at int64) int64 {
	entered := k.list[0].entered(at)
	for _, v := range k.list[1:k.n] {
		entered = max(entered, v.entered(at))
	}
	return entered
}

// together reports whether the charges entered at a and at b, which is later, may be one
// entry at b: each version for which b counts has both in one bucket. A log has no
// buckets; but what only others than the one with the shortest period count, it need
// know to a thousandth of their periods only.
func (k *keepers) together(now, a, b int64) bool {
	shortest := 0
	for i, v := range k.all() {
		if v.token < k.list[shortest].token {
			shortest = i
		}
	}
	for i, v := range k.all() {
		if v.leaves(b) <= now {
			continue
		}
		switch {
		case v.buckets > 0:
			if v.leaves(a) != v.leaves(b) {
				return false
			}
		case i == shortest:
			if a != b {
				return false
			}
		default:
			part := max(v.token/1000, 1)
			if floorDiv(a, part) != floorDiv(b, part) {
				return false
			}
		}
	}
	return true
}

// view is a version's view of a state that other versions share.
type view struct {
	keepers
	used  int64
	first int   // the oldest entry that counts, if any does
	reset int64 // ResetAfter, in microseconds
	more  int64 // how much longer the state is kept
}

func (l *Limit) viewOf(at int64, s *state) *view {
	v := &view{keepers: s.keepers()}
	v.first = sort.Search(len(s.Log)+1, func(i int) bool { return l.ends(&v.keepers, s.entry(i).At) > at })
	if v.first <= len(s.Log) {
		v.used = s.B
		for _, e := range s.Log[v.first:] {
			v.used += e.Units
		}
	}
	if v.used > 0 {
		v.reset = l.ends(&v.keepers, s.A) - l.slide.present(at)
	}
	v.more = max(v.forgotten()-at-v.reset, 0)
	return v
}

// entry returns the i-th entry, of which the last is the newest.
func (s *state) entry(i int) engine.Entry {
	if i == len(s.Log) {
		return engine.Entry{At: s.A, Units: s.B}
	}
	return s.Log[i]
}

// ends returns when what was entered at at stops counting for l, rounded up to a tick.
func (l *Limit) ends(k *keepers, at int64) int64 {
	end := min(l.slide.leaves(at), k.gone(at))
	return end + floorMod(-end, l.slide.tick())
}

// stepBeside is stepSliding on a state that other versions have charged.
func (l *Limit) stepBeside(now *Now, c *Charge, s *state, r *Result) {
	v, n := l.viewOf(now.Steady, s), l.spec.Units
	*r = Result{OK: true}
	switch {
	case c.Cost == 0:
	case c.Cost > l.largest:
		r.OK, r.RetryAfter = false, Never
	case v.used+c.Cost <= n:
		r.Receipt = l.enter(now, s, now.Steady, c.Cost)
	default:
		units, i := v.used+c.Cost-n, v.first
		for ; i < len(s.Log); i++ {
			if units -= s.Log[i].Units; units <= 0 {
				break
			}
		}
		// A turn has this version keep what counts for it until then. Without one, its own
		// charges may stop counting before, and with them what only it keeps.
		at := s.entry(i).At
		if turn := l.slide.leaves(at); l.slide.waits(now, l.maxWait(c), turn, r) {
			r.Receipt = l.enter(now, s, turn, c.Cost)
		} else {
			r.RetryAfter = min(r.RetryAfter, micros(l.ends(&v.keepers, at)-l.slide.present(now.Steady)))
		}
	}
	if r.Receipt.Cost > 0 {
		v = l.viewOf(now.Steady, s)
	}
	r.Remaining, r.ResetAfter, s.D = max(0, n-v.used), micros(v.reset), v.more
}

// forget leaves out the versions of whose charges nothing is kept any more.
func (k *keepers) forget(at int64) {
	for i := 0; i < k.n; {
		if k.gone(k.list[i].At) > at {
			i++
		} else {
			k.n = len(slices.Delete(k.all(), i, i+1))
		}
	}
}

// see makes a version known that looks at entries of which the newest is at at, if it
// would keep them for longer than all others do. Otherwise they would be gone when it has
// stopped denying because of them. It reports whether it has.
func (k *keepers) see(l *Limit, at, now int64) bool {
	if k.index(l.numbers) >= 0 || l.slide.leaves(at) <= k.forgotten() {
		return false
	}
	if k.add(l.numbers, at); k.n > mostVersions {
		k.unite(now)
	}
	return true
}

// rebaseVersions brings the entries of several versions to the present.
func (s *state) rebaseVersions(at int64) {
	k := s.keepers()
	was := k.n
	if s.A > at+s.E { // see clamp
		s.gather(k.entered(at + s.E))
		s.shorten()
		k = s.keepers()
	}
	if k.forget(at); k.n == 0 {
		*s = state{}
		return
	}
	if k.n < was {
		s.put(&k)
	}
	gone := 0
	for gone < len(s.Log) && k.gone(s.Log[gone].At) <= at {
		s.C -= s.Log[gone].Units
		gone++
	}
	s.Log = s.Log[gone:]
}

// shorten has no version's latest charge be later than the newest entry.
func (s *state) shorten() {
	if s.Rest == nil {
		return
	}
	k := s.keepers()
	for i := range k.all() {
		k.list[i].At = min(k.list[i].At, s.A)
	}
	s.put(&k)
}

// join opens an entry for a charge that runs at at, if there is none yet, beside those
// of other versions.
func (l *Limit) join(now *Now, s *state, at int64) {
	k := s.keepers()
	own := k.index(l.numbers)
	if own < 0 {
		own = k.n
		k.add(l.numbers, at)
	}
	if entered := k.entered(at); entered > s.A {
		s.open(entered)
		for len(s.Log) > 0 && s.C >= mostKept {
			s.C -= s.Log[0].Units
			s.Log = s.Log[1:]
		}
		if n := len(s.Log); n >= manyEntries && n%256 == 0 {
			s.merge(now.Steady, &k)
		}
	}
	k.list[own].At = s.A
	if k.n > mostVersions {
		k.unite(now.Steady)
	}
	s.put(&k)
}

// merge makes one of entries that no version tells apart.
func (s *state) merge(now int64, k *keepers) {
	log := make([]engine.Entry, 0, len(s.Log))
	for _, e := range s.Log {
		if last := len(log) - 1; last >= 0 && k.together(now, log[last].At, e.At) {
			log[last] = engine.Entry{At: e.At, Units: log[last].Units + e.Units}
		} else {
			log = append(log, e)
		}
	}
	s.Log = log
}

// unite makes one of the two versions with the shortest spans.
func (k *keepers) unite(now int64) {
	all := k.all()
	shorter := func(i, j int) bool { return all[i].leaves(now) < all[j].leaves(now) }
	first, second := 0, 1
	if shorter(1, 0) {
		first, second = 1, 0
	}
	for i := 2; i < k.n; i++ {
		if shorter(i, first) {
			first, second = i, first
		} else if shorter(i, second) {
			second = i
		}
	}
	all[second].At = max(all[second].At, all[first].At)
	k.n = len(slices.Delete(all, first, first+1))
}
