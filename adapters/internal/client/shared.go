package client

import (
	"context"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/store"
)

// A shared pause is a ban in the limiter's store, under a limit and keys of its own, so no limit of an application
// takes part. Every process looks for one before it sends a request, and its gate then opens when the store says
// that the pause ends. The gates stay each process's own.

// PauseLimit is the name of the limit under which a store keeps pauses.
const PauseLimit = "outgoing-pause"

// pauseLimit counts nothing: only Banner.Ban starts its bans. Its numbers are any that a Ban may have.
var pauseLimit = func() *store.Limit {
	l, err := store.NewLimit(store.Spec{Name: PauseLimit, Algorithm: store.Ban, Units: 1, Period: time.Second,
		Ban: time.Second})
	if err != nil {
		panic(err)
	}
	return l
}()

// pauseKey returns the key of a destination's pause. By default a destination's key is its host, and then the pause
// has the key of its charges: a cluster keeps both in one slot. Join's keys begin with a digit, and hosts with a
// scheme.
func pauseKey(to gateKey) (string, error) {
	key := to.host
	if to.key != to.host {
		joined, err := keytext.Join([]string{to.host, to.key})
		if err != nil {
			return "", err
		}
		key = joined
	}
	return keytext.Encode(key)
}

// sharePause tells the other processes of a pause that a server asks for, unless it is longer than requests wait. If
// one that ends later is in force, it becomes this process's, too. A store that fails or panics changes nothing.
func (t *Transport) sharePause(ctx context.Context, to gateKey, d time.Duration) {
	pauses, can := t.Pauses.(store.Banner)
	if !can || d > t.MaxPause {
		return
	}
	key, err := pauseKey(to)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), background.SettleTimeout)
	defer cancel()
	background.Do("sharing a pause", func() {
		results, err := pauses.Ban(ctx, key, d, pauseLimit)
		if err == nil && len(results) == 1 {
			t.gates.close(to, time.Now(), results[0].RetryAfter)
		}
	})
}

// learnPause closes the gate of a destination if another process was asked for a pause.
func (t *Transport) learnPause(ctx context.Context, to gateKey) {
	if t.Pauses == nil || t.MaxPause == 0 {
		return
	}
	key, err := pauseKey(to)
	if err != nil {
		return
	}
	background.Do("looking for a pause", func() {
		charges, results := [1]store.Charge{{Key: key, Limit: pauseLimit, Cost: 1}}, [1]store.Result{}
		asked := time.Now()
		if err := t.Pauses.Take(ctx, charges[:], results[:]); err == nil && !results[0].OK {
			t.gates.adopt(to, asked, time.Now(), results[0].RetryAfter)
		}
	})
}
