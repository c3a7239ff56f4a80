package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// unheldSlots are those that nobody holds and the server may count until their leases run
// out: a call that may have taken them had no answer, or they could not be released. The
// store has chosen their leases, so, unlike other charges, they can be released without
// knowing whether they are taken, and more than once.
type unheldSlots struct {
	mu      sync.Mutex
	slots   []*unheld
	running bool
}

type unheld struct {
	charge   store.Charge // which releases it
	until    time.Time    // then the lease has run out
	released int          // how often
}

const (
	// mostUnheld bounds what a long outage adds up to. The leases of others run out.
	mostUnheld = 10_000
	// enough is how often a slot is released. A server that has been paused may execute
	// the release before the call that takes the slot, which came by another connection.
	enough = 2
	// calm is the longest pause between releases.
	calm = time.Second
)

// unanswered lets go the slots of calls in a batch that have had no answer.
func (s *Store) unanswered(batch []*ticket[taking]) {
	for _, t := range batch {
		if t.failed == nil || !errors.Is(t.failed, ErrIndeterminate) {
			continue
		}
		releases := slices.Clone(t.what.charges)
		for i := range releases {
			releases[i].Receipt = store.Receipt{Cost: releases[i].Cost, Lease: t.what.leases[i]}
			releases[i].Cost = 0
		}
		s.letGo(releases)
	}
}

// letGo makes those of the charges that release slots again, in the background.
func (s *Store) letGo(charges []store.Charge) {
	u := &s.unheld
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if c.Cost == 0 && c.Receipt.Lease != (store.LeaseID{}) && c.Limit != nil && len(u.slots) < mostUnheld {
			u.slots = append(u.slots, &unheld{charge: *c, until: time.Now().Add(s.lease)})
		}
	}
	if len(u.slots) > 0 && !u.running {
		u.running = true
		go s.releaseUnheld()
	}
}

// releaseUnheld runs until nothing is left to release.
func (s *Store) releaseUnheld() {
	u := &s.unheld
	for pause := min(s.timeout, calm); ; pause = min(2*pause, calm) {
		select {
		case <-s.closed:
			return
		case <-time.After(pause):
		}
		u.mu.Lock()
		slots := slices.Clone(u.slots)
		u.mu.Unlock()
		charges := make([]store.Charge, len(slots))
		for i, h := range slots {
			charges[i] = h.charge
		}
		err := s.settle(context.Background(), charges, make([]store.Result, len(charges)))
		u.mu.Lock()
		now := time.Now()
		for _, h := range slots {
			if err == nil {
				h.released++
			}
		}
		u.slots = slices.DeleteFunc(u.slots, func(h *unheld) bool { return h.released == enough || now.After(h.until) })
		if len(u.slots) == 0 {
			u.running = false
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
	}
}
