package store

import "github.com/stint-go/stint/internal/algorithm"

// State is the state of one limit for one key, which a store keeps under Limit.StateName and
// Charge.Key. A limit whose numbers have changed can still read its earlier states. The zero
// State is the state of a new key.
//
// A store keeps a state for its Limit.Lifetime. After that time, the state is equivalent to the
// zero State. A store outside of this process keeps states as bytes: see [State.AppendBinary].
// Copies of a State share memory: only the latest copy may be passed to Decide and Amend.
type State algorithm.Sealed

// open returns the words of the state.
func (s *State) open() *algorithm.State { return (*algorithm.Sealed)(s).Open() }

// AppendBinary appends the state to b, for a store outside of this process. The encoding is
// lossless and begins with the version of its format. The encoding of the zero State is empty.
// AppendBinary implements encoding.BinaryAppender and never fails.
func (s *State) AppendBinary(b []byte) ([]byte, error) { return s.open().Append(b), nil }

// MarshalBinary returns the bytes that AppendBinary appends. It implements
// encoding.BinaryMarshaler.
func (s *State) MarshalBinary() ([]byte, error) { return s.AppendBinary(nil) }

// UnmarshalBinary decodes a state that AppendBinary of this or an earlier release has encoded.
// Empty data is the zero State. UnmarshalBinary returns an error, and sets the zero State, if
// data is malformed, contains numbers that no algorithm produces, or has a newer format. A
// limit with another algorithm treats the state as the zero State. UnmarshalBinary implements
// encoding.BinaryUnmarshaler.
func (s *State) UnmarshalBinary(data []byte) error { return s.open().Decode(data) }
