package waiting

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/store"
)

// takeSlots is take for a call that takes slots, in its turn if it has to wait for
// them.
func (w *Waiter) takeSlots(ctx context.Context) error {
	w.Class(ctx) // slots are counted by class: ask for it before there is anything to lose
	if w.lines.Slots.Waiting() {
		if i, n := w.behind(); n > 0 {
			if w.patience(ctx, i) > 0 {
				return w.waitSlot(ctx, i, false)
			}
			w.note(i, n)
			return w.deny(ctx, i)
		}
	}
	if err := w.take(ctx); err != nil || w.Granted {
		return err
	}
	if i := w.full(ctx); i >= 0 {
		return w.waitSlot(ctx, i, true)
	}
	return nil
}

// behind returns the first charge whose slots others wait for, and how many wait: a
// slot that is free now is theirs. A charge that takes no slot is behind none.
func (w *Waiter) behind() (i int, queued int64) {
	for i := range w.Charges {
		ch, t := &w.Charges[i], &w.Terms[i]
		if t.Way != ForSlot || ch.DryRun || ch.Cost == 0 {
			continue
		}
		if n := w.lines.Slots.Queued(KeyOf(ch)); n > 0 {
			t.Slots(ch) // makes the key follow this limit now, without asking it
			return i, n
		}
	}
	return 0, 0
}

// patience returns how long a charge may go on waiting for a slot: as long as its own
// limit allows, however long the call has stood in the lines of others. A patient call
// has a single patience for all of them.
func (w *Waiter) patience(ctx context.Context, i int) time.Duration {
	t := &w.Terms[i]
	wait := t.MaxWait
	switch {
	case t.Closed():
		return 0
	case w.Patient:
		wait = store.Never
	case len(w.Seen) > 0:
		wait -= w.Seen[i].Waited
	}
	if t, ok := ctx.Deadline(); ok {
		if left := time.Until(t); left < wait || w.Patient {
			wait = left
		}
	}
	return wait
}

// full returns the first charge that is denied for lack of a slot and may wait. It
// returns -1 if there is none, or if something else denies as well.
func (w *Waiter) full(ctx context.Context) int {
	first := -1
	for i := range w.Charges {
		switch r := &w.Results[i]; {
		case r.OK || w.Charges[i].DryRun:
		case w.Terms[i].Way != ForSlot || r.RetryAfter == store.Never || w.patience(ctx, i) <= 0:
			return -1
		case first < 0:
			first = i
		}
	}
	return first
}

// deny answers a call that must not overtake those who wait for charge i's slots.
func (w *Waiter) deny(ctx context.Context, i int) error {
	costs := make([]int64, len(w.Charges))
	for j := range w.Charges {
		costs[j], w.Charges[j].Cost = w.Charges[j].Cost, 0
	}
	err := w.ask(ctx)
	for j := range w.Charges {
		w.Charges[j].Cost = costs[j]
	}
	w.Results[i].OK, w.Results[i].Remaining = false, 0 // what is free belongs to others
	return err
}

// waitSlot stands in line for charge i's slots until the call is granted, denied by
// something else, or out of patience. asked says that the results hold the denial that
// brought it here.
func (w *Waiter) waitSlot(ctx context.Context, i int, asked bool) error {
	w.slot.asked = asked
	err := w.lines.Wait(ctx, w.wants(ctx, i), w)
	w.book()
	switch {
	case err == nil:
		return w.slot.err
	case err == ErrFull || err == ErrLate:
		if w.slot.asked {
			return nil
		}
		return w.deny(ctx, w.slot.charge)
	}
	return w.timedOut(ctx, err)
}

// wants makes the call want the slots of charge i.
func (w *Waiter) wants(ctx context.Context, i int) *Want {
	now := time.Now()
	ch := &w.Charges[i]
	w.slot.charge, w.slot.booked = i, now
	w.slot.want = &Want{
		Key: KeyOf(ch), Cost: ch.Cost, Rank: w.rank(ctx, now), Shares: w.Terms[i].Shares,
		Room: w.room(i), Until: now.Add(w.patience(ctx, i)),
	}
	return w.slot.want
}

// Came implements Asker.
func (w *Waiter) Came(queued int64, joined bool) {
	w.note(w.slot.charge, queued)
	if joined {
		w.begin(w.slot.charge, 0)
	}
}

// Ask implements Asker.
func (w *Waiter) Ask(ctx context.Context) *Want {
	w.renew()
	if err := w.bound(ctx); err != nil {
		w.slot.err = w.timedOut(ctx, err)
		return nil
	}
	if w.slot.err = w.take(ctx); w.slot.err != nil {
		return nil
	}
	w.slot.asked = true
	w.book()
	switch i := w.full(ctx); {
	case i < 0:
		return nil
	case w.Results[w.slot.charge].OK:
		return w.wants(ctx, i)
	}
	return w.slot.want
}

// renew replaces the limits of the call by what they have become: an Update may have
// changed the number of slots, while old and new waiters stand in one line.
func (w *Waiter) renew() {
	for i := range w.Charges {
		if l, t, other := w.Newest(i); other {
			w.Charges[i].Limit, w.Terms[i] = l, t
			w.slot.asked = false // there is no answer by the new limits yet
		}
	}
}

// book adds up how long the call has stood in its line.
func (w *Waiter) book() {
	now := time.Now()
	d := now.Sub(w.slot.booked)
	w.slot.booked = now
	w.Waited += d
	w.Seen[w.slot.charge].Waited += d
}

// timedOut ends a wait whose context has ended with err. If that is the deadline, no
// slot has come in time, which is the limit's answer.
func (w *Waiter) timedOut(ctx context.Context, err error) error {
	switch {
	case !errors.Is(err, context.DeadlineExceeded):
		clear(w.Results)
		return &LeftError{err}
	case w.slot.asked:
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), background.GiveBack)
	defer stop()
	return w.deny(ctx, w.slot.charge)
}
