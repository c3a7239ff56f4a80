package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stint-go/stint/internal/engine"
)

// State is a store's record of one limit and one key: of a [Limit.Name], a
// [Limit.Algorithm] and a [Charge.Key]. Numbers of a limit may change; its states stay
// readable. The zero State means "never seen".
//
// A store keeps a state for its [Limit.Lifetime]. After that it says the same as the zero
// State. A store outside of this process keeps it as bytes: see [State.AppendBinary]. Copies
// share memory: Decide and Amend may change only one of them, the latest.
type State struct{ is state }

// state is the words of a State, for the steps.
type state engine.State

// AppendBinary appends the state to b, for a store that keeps it outside of this process.
// It is exact, and begins with the version of its format. It appends nothing for the zero
// State. It implements encoding.BinaryAppender and never fails.
func (s *State) AppendBinary(b []byte) ([]byte, error) {
	if !s.is.Live {
		return b, nil
	}
	b = append(b, stateFormat)
	b = binary.AppendUvarint(b, uint64(s.is.Low))
	for _, word := range s.is.words() {
		b = binary.AppendVarint(b, *word)
	}
	b = binary.AppendUvarint(b, uint64(len(s.is.Log)))
	for _, e := range s.is.Log {
		b = binary.AppendVarint(binary.AppendVarint(b, e.At), e.Units)
	}
	var versions []engine.Version
	if s.is.Rest != nil {
		versions = s.is.Rest.Versions
	}
	b = binary.AppendUvarint(b, uint64(len(versions)))
	for _, v := range versions {
		b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, v.Numbers.Token), v.Numbers.Unit), v.At)
	}
	return b, nil
}

// MarshalBinary is AppendBinary to nil. It implements encoding.BinaryMarshaler.
func (s *State) MarshalBinary() ([]byte, error) { return s.AppendBinary(nil) }

// UnmarshalBinary reads what AppendBinary has written, by this release or an earlier one.
// Empty data are the zero State. If data is malformed, or written by a release with a newer
// format, the error says so and the state is the zero State. It implements
// encoding.BinaryUnmarshaler.
func (s *State) UnmarshalBinary(data []byte) error {
	*s = State{}
	if len(data) == 0 {
		return nil
	}
	if data[0] != stateFormat {
		return fmt.Errorf("store: a state of format %d, and this release reads format %d", data[0], stateFormat)
	}
	read := words{data: data[1:]}
	is := state{Live: true, Low: uint32(read.unsigned(1 << 32))}
	for _, word := range is.words() {
		*word = read.signed()
	}
	if n := read.count(); n > 0 {
		is.Log = make([]engine.Entry, n)
	}
	for i := range is.Log {
		is.Log[i] = engine.Entry{At: read.signed(), Units: read.signed()}
	}
	if n := read.count(); n > 0 {
		is.Rest = &engine.Rest{Versions: make([]engine.Version, n)}
		for i := range is.Rest.Versions {
			is.Rest.Versions[i] = engine.Version{Numbers: engine.Numbers{Token: read.signed(), Unit: read.signed()}, At: read.signed()}
		}
	}
	if read.bad || len(read.data) > 0 {
		return errMalformed
	}
	s.is = is
	return nil
}

// stateFormat is the version of the format of AppendBinary.
const stateFormat = 1

var errMalformed = errors.New("store: a state that is malformed or incomplete")

// words returns the words that every state has, in the order of the format.
func (s *state) words() [7]*int64 {
	return [...]*int64{&s.Numbers.Token, &s.Numbers.Unit, &s.A, &s.B, &s.C, &s.D, &s.E}
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
