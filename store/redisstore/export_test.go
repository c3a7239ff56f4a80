package redisstore

import (
	"time"
)

// WithHelpClock has the deny cache and leasing count time by now. It stands after
// the options that turn them on.
func WithHelpClock(now func() time.Time) Option {
	return func(s *Store) {
		if s.denies != nil {
			s.denies.now = now
		}
		if s.stocks != nil {
			s.stocks.now = now
		}
	}
}

// Sweep gives back what WithLeasing holds too long, and waits for it.
func (s *Store) Sweep() { s.giveBack(false) }

// Renew renews all leases now, and reports whether the server has answered.
func (s *Store) Renew() bool { return s.renew(0) }

// UnderRace says that the race detector is at work.
const UnderRace = underRace
