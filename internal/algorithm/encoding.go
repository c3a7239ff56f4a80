package algorithm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// stateFormat is the version of the format of Append.
const stateFormat = 1

// Append appends the state to b: store.State.AppendBinary.
func (s *State) Append(b []byte) []byte {
	if !s.Live {
		return b
	}
	b = append(b, stateFormat)
	for _, word := range s.words() {
		b = binary.AppendVarint(b, *word)
	}
	b = binary.AppendUvarint(b, uint64(len(s.Log)))
	for _, e := range s.Log {
		b = binary.AppendVarint(binary.AppendVarint(b, e.At), e.Units)
	}
	return b
}

// Decode decodes a state that Append has encoded: store.State.UnmarshalBinary.
func (s *State) Decode(data []byte) error {
	*s = State{}
	if len(data) == 0 {
		return nil
	}
	if data[0] != stateFormat {
		return fmt.Errorf("store: a state of format %d, and this release reads format %d", data[0], stateFormat)
	}
	r := wordReader{data: data[1:]}
	read := State{Live: true, Read: true}
	for _, word := range read.words() {
		*word = r.signed()
	}
	if n := r.count(); n > 0 {
		read.Log = make([]Entry, n)
	}
	for i := range read.Log {
		read.Log[i] = Entry{At: r.signed(), Units: r.signed()}
	}
	if r.bad || len(r.data) > 0 {
		return errMalformed
	}
	for a := range algorithms {
		if read.validFor(Algorithm(a)) {
			*s = read
			return nil
		}
	}
	return errMalformed
}

// Accept forgets a state that was read from bytes if the limit's algorithm can't have written
// it. The bytes don't say which algorithm has.
func (l *Limit) Accept(s *State) {
	if s.Read && !s.validFor(l.spec.Algorithm) {
		*s = State{}
	}
	s.Read = false
}

var errMalformed = errors.New("store: a state that is malformed or incomplete")

// words returns the words that every state has, in the order of the format.
func (s *State) words() [8]*int64 {
	w := &s.W
	return [...]*int64{&s.Numbers.Token, &s.Numbers.Unit, &s.Numbers.Burst, &w[0], &w[1], &w[2], &w[3], &w[4]}
}

// wordReader reads numbers. After the first mistake all are 0.
type wordReader struct {
	data []byte
	bad  bool
}

func (w *wordReader) next(size int) {
	if size <= 0 {
		w.data, w.bad = nil, true
		return
	}
	w.data = w.data[size:]
}

func (w *wordReader) signed() int64 {
	n, size := binary.Varint(w.data)
	if w.next(size); w.bad {
		return 0
	}
	return n
}

// count reads how many follow, each of two bytes at least.
func (w *wordReader) count() uint64 { return w.unsigned(uint64(len(w.data))/2 + 1) }

// unsigned reads a number below end.
func (w *wordReader) unsigned(end uint64) uint64 {
	n, size := binary.Uvarint(w.data)
	if n >= end {
		size = 0
	}
	if w.next(size); w.bad {
		return 0
	}
	return n
}
