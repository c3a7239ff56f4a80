package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

// unreleasedSlots retries the release of slots that no permit holds but the server may count until their
// leases expire: a call that may have taken them had no answer, or their release failed.
// This store has chosen their leases. So, unlike other charges, they can be released
// without knowing whether they were taken, and more than once.
type unreleasedSlots struct {
	settle   func(ctx context.Context, charges []store.Charge, results []store.Result) error
	timeout  time.Duration // of a call
	leaseTTL time.Duration
	closed   <-chan struct{} // ends the retries

	mu      sync.Mutex
	pending []*pendingRelease
	running bool
}

// pendingRelease is the release of one slot.
type pendingRelease struct {
	charge store.Charge
	until  time.Time // the lease's expiry
	made   int       // number of releases that the server has answered
}

const (
	// mostPendingReleases bounds the memory that a long outage takes. Further leases expire.
	mostPendingReleases = 10_000
	// releasesPerSlot is how often each slot is released. A server that has been paused may
	// execute the release before the call that takes the slot, which came by another
	// connection.
	releasesPerSlot = 2
	// longestRetryPause is the longest pause between releases.
	longestRetryPause = time.Second
)

// addUnanswered adds the slots of calls whose outcome isn't known.
func (r *unreleasedSlots) addUnanswered(calls []*batch.Call[takeRequest]) {
	for _, c := range calls {
		if c.Failed == nil || !errors.Is(c.Failed, ErrIndeterminate) {
			continue
		}
		releases := slices.Clone(c.Body.Charges)
		for i := range releases {
			releases[i].Receipt = store.Receipt{Cost: releases[i].Cost, Lease: c.Body.Leases[i]}
			releases[i].Cost = 0
		}
		r.add(releases)
	}
}

// add repeats, in the background, the charges that release slots, and ignores the others.
func (r *unreleasedSlots) add(charges []store.Charge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if releases(c) && c.Limit != nil && len(r.pending) < mostPendingReleases {
			r.pending = append(r.pending, &pendingRelease{charge: *c, until: time.Now().Add(r.leaseTTL)})
		}
	}
	if len(r.pending) > 0 && !r.running {
		r.running = true
		go r.run()
	}
}

// run releases the pending slots until none is left or the store is closed.
func (r *unreleasedSlots) run() {
	for pause := min(r.timeout, longestRetryPause); ; pause = min(2*pause, longestRetryPause) {
		select {
		case <-r.closed:
			return
		case <-time.After(pause):
		}
		r.mu.Lock()
		pending := slices.Clone(r.pending)
		r.mu.Unlock()
		charges := make([]store.Charge, len(pending))
		for i, p := range pending {
			charges[i] = p.charge
		}
		err := r.settle(context.Background(), charges, make([]store.Result, len(charges)))
		if done := r.recordTry(pending, err == nil); done {
			return
		}
	}
}

// recordTry records whether the server has answered some releases, and reports whether none is
// left.
func (r *unreleasedSlots) recordTry(some []*pendingRelease, answered bool) (done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, p := range some {
		if answered {
			p.made++
		}
	}
	r.pending = slices.DeleteFunc(r.pending,
		func(p *pendingRelease) bool { return p.made == releasesPerSlot || now.After(p.until) })
	if len(r.pending) == 0 {
		r.running = false
	}
	return !r.running
}

// removeAll returns the charges that release the pending slots, and retries them no more.
func (r *unreleasedSlots) removeAll() (charges []store.Charge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pending {
		charges = append(charges, p.charge)
	}
	r.pending = nil
	return charges
}
