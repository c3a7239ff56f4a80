package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stint-go/stint/store"
)

// The scripts decide and keep the states; what there is to say about a decision
// is worked out here, by the same steps on the states that the script found. So
// the scripts' answers are short, and no figure is worked out in two ways.

// errStale is the error of a decision that needed a bound of the calendar which
// the script was not told: nothing was done.
var errStale = errors.New("redisstore: the server's calendar is not where its clock was thought to be")

// errTwins says that the script and the steps disagree. It would be a fault of
// this module.
var errTwins = errors.New("redisstore: the script and the steps disagree")

// takeAnswer makes results of a script's answer to p. stale are the decisions
// that were not made.
func takeAnswer(p *plan, reply any) (now int64, stale []*decision, err error) {
	words, now, err := open(reply)
	if err != nil {
		return 0, nil, err
	}
	var few [8]store.State
	for i := range p.shapes {
		s := &p.shapes[i]
		k := len(s.records)
		states := few[:]
		if k > len(few) {
			states = make([]store.State, k)
		}
		states = states[:k]
		if len(words) < 1+k*len(s.entries) {
			return now, stale, fmt.Errorf("redisstore: the script's answer is %d words short", 1+k*len(s.entries)-len(words))
		}
		granted, _ := words[0].(int64)
		words = words[1:]
		for j := range s.entries {
			e := &s.entries[j]
			found := words[:k]
			words = words[k:]
			if n, ok := found[0].(int64); ok && n < 0 {
				stale = append(stale, e.decisions...)
				continue
			}
			for c := range states {
				if states[c], err = decode(&e.decisions[0].charges[c], found[c]); err != nil {
					return now, stale, err
				}
			}
			for _, d := range e.decisions {
				if d.answer(now, states); d.granted {
					granted--
				}
			}
		}
		if granted != 0 {
			return now, stale, errTwins
		}
	}
	return now, stale, nil
}

// answer decides d against the states, and leaves them as they are then.
func (d *decision) answer(now int64, states []store.State) {
	instant := store.Now{Steady: now, Wall: now}
	for i := range d.charges {
		if d.charges[i].Limit.Algorithm() == store.Concurrency {
			d.concurrency(instant, states)
			return
		}
	}
	d.granted = store.Decide(instant, d.charges, states, d.results)
}

// concurrency is answer for decisions that may hold leases: each has an id of
// its own, where the steps number the leases of a process.
func (d *decision) concurrency(now store.Now, states []store.State) {
	now.Lease = store.Lease(1)
	d.granted = store.Decide(now, d.charges, states, d.results)
	for i := range d.charges {
		if r := &d.results[i]; d.charges[i].Limit.Algorithm() == store.Concurrency && r.Receipt.Cost > 0 {
			r.Receipt.Lease = d.leases[i]
		}
	}
}

// settleAnswer makes results of a script's answer. stale are the settlements
// that were not made.
func settleAnswer(ss []*settlement, reply any) (now int64, stale []*settlement, err error) {
	words, now, err := open(reply)
	if err != nil {
		return 0, nil, err
	}
	if len(words) != len(ss) {
		return now, nil, fmt.Errorf("redisstore: the script answered %d of %d settlements", len(words), len(ss))
	}
	for i, s := range ss {
		if v, ok := words[i].(int64); ok && v < 0 {
			stale = append(stale, s)
			continue
		}
		if err := s.answer(now, words[i]); err != nil {
			return now, stale, err
		}
	}
	return now, stale, nil
}

func (s *settlement) answer(now int64, found any) error {
	instant := store.Now{Steady: now, Wall: now}
	text, _ := found.(string)
	before, after, both := strings.Cut(text, "|")
	if both {
		found = before
	}
	state, err := decode(s.charge, found)
	if err != nil {
		return err
	}
	if !both {
		store.Amend(instant, s.charge, &state, s.result)
		return nil
	}
	// The entries are in the server only: the receipt does not depend on them,
	// and how things stand is what the script left.
	store.Amend(instant, s.charge, &state, s.result)
	receipt := s.result.Receipt
	if state, err = decode(s.charge, after); err != nil {
		return err
	}
	charges := [1]store.Charge{{Key: s.charge.Key, Limit: s.charge.Limit}}
	var results [1]store.Result
	store.Decide(instant, charges[:], []store.State{state}, results[:])
	*s.result = results[0]
	s.result.Receipt = receipt
	return nil
}

// open takes the server's instant off an answer.
func open(reply any) (words []any, now int64, err error) {
	words, ok := reply.([]any)
	if !ok || len(words) == 0 {
		return nil, 0, fmt.Errorf("redisstore: the script answered with a %T", reply)
	}
	if now, ok = words[0].(int64); !ok {
		return nil, 0, fmt.Errorf("redisstore: the script's instant is a %T", words[0])
	}
	return words[1:], now, nil
}
