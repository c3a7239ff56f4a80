package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/stint-go/stint/internal/engine"
)

// State is a store's record of one limit and one key: of a [Limit.StateName] and a
// [Charge.Key]. Numbers of a limit may change; its states stay readable. The zero State means
// "never seen".
//
// A store keeps a state for its [Limit.Lifetime]. After that time, the state is equivalent to the
// zero State. A store outside of this process keeps it as bytes: see [State.AppendBinary]. Copies
// share memory: Decide and Amend may change only one of them, the latest.
type State engine.Sealed

// is returns the state itself.
func (s *State) is() *state { return (*state)((*engine.Sealed)(s).Open()) }

// state is the words of a State, for the steps.
type state engine.State

// AppendBinary appends the state to b, for a store that keeps it outside of this process.
// It is exact, and begins with the version of its format. It appends nothing for the zero
// State. It implements encoding.BinaryAppender and never fails.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	if !s.is().Live {
		return b, nil
	}
	b = append(b, stateFormat)
	for _, word := range s.is().words() {
		b = binary.AppendVarint(b, *word)
	}
	b = binary.AppendUvarint(b, uint64(len(s.is().Log)))
	for _, e := range s.is().Log {
		b = binary.AppendVarint(binary.AppendVarint(b, e.At), e.Units)
	}
	return b, nil
}

// MarshalBinary is AppendBinary to nil. It implements encoding.BinaryMarshaler.
func (s *State) MarshalBinary() ([]byte, error) { return s.AppendBinary(nil) }

// UnmarshalBinary reads what AppendBinary has written, by this release or an earlier one.
// Empty data are the zero State. If data is malformed, has numbers that no algorithm writes, or
// was written by a release with a newer format, the error says so and the state is the zero
// State. A limit whose algorithm can't have written the state treats it as the zero State. It
// implements encoding.BinaryUnmarshaler.
func (s *State) UnmarshalBinary(data []byte) error {
	*s = State{}
	if len(data) == 0 {
		return nil
	}
	if data[0] != stateFormat {
		return fmt.Errorf("store: a state of format %d, and this release reads format %d", data[0], stateFormat)
	}
	read := words{data: data[1:]}
	is := state{Live: true, Read: true}
	for _, word := range is.words() {
		*word = read.signed()
	}
	if n := read.count(); n > 0 {
		is.Log = make([]engine.Entry, n)
	}
	for i := range is.Log {
		is.Log[i] = engine.Entry{At: read.signed(), Units: read.signed()}
	}
	if read.bad || len(read.data) > 0 {
		return errMalformed
	}
	for a := range algorithms {
		if is.fits(Algorithm(a)) {
			*s.is() = is
			return nil
		}
	}
	return errMalformed
}

// accept forgets a state that was read from bytes if the limit's algorithm can't have written
// it. The bytes don't say which algorithm has.
func (l *Limit) accept(s *state) {
	if s.Read && !s.fits(l.spec.Algorithm) {
		*s = state{}
	}
	s.Read = false
}

// remote is further from the origin than any instant that a step writes, in microseconds: a
// limit takes at most a century, from a present within the horizon.
const remote = far/2 + 2*horizon

// fits reports whether an algorithm can have written the state, or at least can handle it: it
// divides by no zero, no sum overflows, and what is counted twice agrees.
func (s *state) fits(a Algorithm) bool {
	n, log := s.Numbers, len(s.Log)
	within := func(n, end int64) bool { return -end < n && n < end }
	counts := 0 <= s.B && s.B < exact && 0 <= s.C && s.C < exact
	switch a {
	case TokenBucket, LeakyBucket:
		of := scaleOf(n.Unit)
		return n.Token > 0 && of.possible() && n.Burst >= 0 && of.covers(float64(n.Burst)*float64(n.Token), far/2+horizon) &&
			of.covers(float64(s.A), remote) && of.covers(float64(s.B), far/2+horizon) && s.C == 0 && s.hasLevels()
	case WarmUp:
		of := scaleOf(n.Unit)
		return 0 < n.Token && n.Token <= mostWarm && n.Burst == 0 && of.possible() && of.covers(float64(s.A), remote) && counts && s.B <= n.Token &&
			of.covers(float64(s.C), far/2) && of.covers(float64(s.E), remote) && s.D == 0 && log == 0
	case IntervalBucket:
		return 0 < n.Token && n.Token <= MaxCost && 0 < n.Burst && n.Burst <= MaxCost && within(n.Unit, exact) &&
			(n.Unit > 0 || windowKind(-n.Unit&7) > noWindow && windowKind(-n.Unit&7) <= monthlyWindow && intervalLength(n.Unit) > 0) &&
			within(s.A, remote) && counts && s.C == 0 && s.hasLevels()
	}
	switch {
	case a == Ban:
		counts = counts && s.B <= longest.Microseconds() && 0 < n.Token && n.Token < remote && n.Unit == 0 && n.Burst == 0
		return counts && within(s.A, remote) && s.C|s.D|s.E == 0 && log <= mostStrikes && s.ascends(0, remote)
	case n != engine.Numbers{} || !counts:
		return false
	case a == FixedWindow:
		return within(s.A, remote) && s.D|s.E == 0 && log == 0
	case a == SlidingCounter:
		return within(s.A, remote) && 0 <= s.D && s.D < exact && s.E == 0 && log == 0
	case a == Concurrency:
		return s.B|s.C|s.D|s.E == 0 && s.ascends(0, math.MaxInt64) && s.units() == s.A
	default: // SlidingWindow, SlidingLog
		return within(s.A, remote) && 0 <= s.E && s.E < remote && s.D == 0 && s.B > 0 && s.ascends(1, s.A) && s.units() == s.C-s.B
	}
}

// possible reports whether a limit may have the scale.
func (s scale) possible() bool { return 0 < s.PerTick && s.PerTick < exact && s.Exponent <= coarsest+1 }

// covers reports whether n units are less than so many microseconds. Instants earlier than the
// horizon, of a test's clock, may be beyond what is exact.
func (s scale) covers(n, us float64) bool {
	return math.Abs(n) < 2*exact && math.Abs(n)/float64(s.PerTick)*float64(s.Tick()) < us
}

// hasLevels reports whether D, E and the Log are as a bucket writes them.
func (s *state) hasLevels() bool {
	for i, e := range s.Log {
		if i > 0 && e.Units <= s.Log[i-1].Units || e.Units >= exact {
			return false
		}
	}
	return -remote < s.D && s.D < remote && -exact < s.E && s.E < remote && (s.D != 0 || s.E == 0 && len(s.Log) == 0) &&
		len(s.Log) <= maxLevels && s.ascends(0, remote)
}

// ascends reports whether the Log is in order and ends before end, and whether every entry
// has as many units as least.
func (s *state) ascends(least, end int64) bool {
	last := int64(-remote)
	for _, e := range s.Log {
		if e.At < last || e.At >= end || e.Units < least {
			return false
		}
		last = e.At
	}
	return true
}

// units returns the sum of the Log's units, or -1 if it is too large.
func (s *state) units() (sum int64) {
	for _, e := range s.Log {
		if e.Units >= exact-sum {
			return -1
		}
		sum += e.Units
	}
	return sum
}

// stateFormat is the version of the format of AppendBinary.
const stateFormat = 1

var errMalformed = errors.New("store: a state that is malformed or incomplete")

// words returns the words that every state has, in the order of the format.
func (s *state) words() [8]*int64 {
	return [...]*int64{&s.Numbers.Token, &s.Numbers.Unit, &s.Numbers.Burst, &s.A, &s.B, &s.C, &s.D, &s.E}
}

// words reads numbers. After the first mistake all are 0.
type words struct {
	data []byte
	bad  bool
}

func (w *words) next(size int) {
	if size <= 0 {
		w.data, w.bad = nil, true
		return
	}
	w.data = w.data[size:]
}

func (w *words) signed() int64 {
	n, size := binary.Varint(w.data)
	if w.next(size); w.bad {
		return 0
	}
	return n
}

// count reads how many follow, each of two bytes at least.
func (w *words) count() uint64 { return w.unsigned(uint64(len(w.data))/2 + 1) }

// unsigned reads a number below end.
func (w *words) unsigned(end uint64) uint64 {
	n, size := binary.Uvarint(w.data)
	if n >= end {
		size = 0
	}
	if w.next(size); w.bad {
		return 0
	}
	return n
}

func compareEntry(e engine.Entry, at int64) int { return cmp.Compare(e.At, at) }

// Now is the instant of one decision.
type Now struct {
	// Steady is in microseconds since the store's own origin, the same for all of its
	// states. It never runs back while the store is in use. A store whose states outlive
	// the process counts from a date, such as Epoch; if that clock has been set back since,
	// what was written later than the present counts from the present.
	Steady int64
	// Wall is in microseconds since Epoch and follows the wall clock. Only limits for
	// which Limit.FollowsCalendar is true need it; for all others it may be 0.
	Wall int64
	// Lease is an id greater than any given to these states before, drawn while they
	// are held. Only concurrency limits read it.
	Lease LeaseID
}

// Epoch is 2026-01-01 00:00:00 UTC, in seconds since 1970. Instants count from here
// rather than from 1970, which keeps them below 2^53 for another 56 years.
const Epoch = 1767225600
