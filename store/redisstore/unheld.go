package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
)

// unheldSlots are those that calls without an answer may have taken. Nobody holds
// them, and the server would count them until their leases run out. The store has chosen
// their leases, so, unlike other charges, they can be released without knowing whether
// they were taken, and more than once.
type unheldSlots struct {
	mu      sync.Mutex
	slots   []*unheld
	running bool
}

// unheld is a slot that may have been taken for nobody.
type unheld struct {
	site     site
	key      string
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

// letGo releases the slots of calls in a batch that have had no answer, in the
// background.
func (s *Store) letGo(batch []*ticket[taking]) {
	var slots []*unheld
	for _, t := range batch {
		if t.failed == nil || !errors.Is(t.failed, ErrIndeterminate) {
			continue
		}
		w := &t.what
		for i, lease := range w.leases {
			if lease != (store.LeaseID{}) {
				c := w.charges[i]
				c.Cost, c.Receipt = 0, store.Receipt{Cost: c.Cost, Lease: lease}
				slots = append(slots, &unheld{site: w.site, key: w.keys[i], charge: c, until: time.Now().Add(s.lease)})
			}
		}
	}
	if len(slots) == 0 {
		return
	}
	u := &s.unheld
	u.mu.Lock()
	defer u.mu.Unlock()
	u.slots = append(u.slots, slots[:min(len(slots), mostUnheld-len(u.slots))]...)
	if !u.running {
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
		s.releaseOnce(slots)
		u.mu.Lock()
		now := time.Now()
		u.slots = slices.DeleteFunc(u.slots, func(h *unheld) bool { return h.released == enough || now.After(h.until) })
		if len(u.slots) == 0 {
			u.running = false
			u.mu.Unlock()
			return
		}
		u.mu.Unlock()
	}
}

func (s *Store) releaseOnce(slots []*unheld) {
	tickets := make(map[site]*ticket[settling])
	for i, h := range slots {
		t := tickets[h.site]
		if t == nil {
			t = newTicket[settling]()
			t.what.site = h.site
			tickets[h.site] = t
		}
		t.what.add(h.charge, h.key, i)
	}
	for _, t := range tickets {
		s.settles.submit(t, false)
	}
	for _, t := range tickets {
		if _, err := t.wait(context.Background()); err != nil {
			continue
		}
		for _, i := range t.what.indexes {
			slots[i].released++
		}
	}
}
