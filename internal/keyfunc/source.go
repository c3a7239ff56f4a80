package keyfunc

import (
	"errors"

	"github.com/stint-go/stint/internal/framework"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/probe"
	"github.com/stint-go/stint/internal/warn"
)

// Source is one use of a key function, and what is known of it. Its address is its
// identity: limits with the same Source share one call of the function per request.
type Source struct {
	Fn Func
	// Constant is the encoded key of a function that has only one, or "".
	Constant string
	Given    bool // Fn is Given
	Asks     framework.Asks
	warn.Source
}

// NewSource returns a Source of k.
func NewSource(k Func) *Source {
	s := &Source{Fn: k, Given: IsGiven(k)}
	if IsConstant(k) {
		if raw, err := k(nil); err == nil {
			s.Constant, _ = keytext.Encode(raw)
		}
	}
	return s
}

// Under returns the key to charge if Take is given a key that encodes to encoded, or
// that can't be encoded because of err. A constant key takes the place of either.
func (s *Source) Under(encoded string, err error) (string, error) {
	if s.Constant != "" {
		return s.Constant, nil
	}
	return encoded, err
}

// Unfit returns why requests through an adapter can't have the key, or nil.
func (s *Source) Unfit(adapter string) error {
	if s.Given {
		return errors.New("GivenKey, which requests don't have: write another WithKey, or use the limiter with Take")
	}
	return s.Asks.Unfit(adapter)
}

// Probe calls the function once, records what that shows, and returns its error.
func (s *Source) Probe() error {
	asked, signs, err := probe.Key(s.Fn)
	s.Asks.Note(asked)
	if IsHeader(s.Fn) {
		signs |= warn.OfField
	}
	s.Probed(signs)
	return err
}
