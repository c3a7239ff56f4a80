package redisstore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint/store"
)

// The scripts decide and keep the states; what there is to say about a decision
// is worked out here, by the same steps on the states that the script found. So
// the scripts' answers are short, and no figure is worked out in two ways.

// errTwins means that the script and the steps disagree: a fault of this module.
var errTwins = errors.New("redisstore: the script and the steps disagree")

// unanswered lists the charges not decided or settled because windows of the calendar were
// missing: those around the instants in asked.
type unanswered[T any] struct {
	what  []T
	asked []int64
}

// wants reports whether an answer is a question, and records it.
func (u *unanswered[T]) wants(answer any, what ...T) (bool, error) {
	text, ok := answer.(string)
	if !ok || !strings.HasPrefix(text, "?") {
		return false, nil
	}
	u.what = append(u.what, what...)
	for word := range strings.SplitSeq(text[1:], ",") {
		at, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return true, fmt.Errorf("redisstore: the script asks for %.80q", text)
		}
		if !slices.Contains(u.asked, at) {
			u.asked = append(u.asked, at)
		}
	}
	return true, nil
}

// asks reports whether the answers for several charges, every n-th from the first,
// contain a question.
func (u *unanswered[T]) asks(answers []any, first, n int, what []T) (asks bool, err error) {
	for i := first; i < len(answers); i += n {
		if wants, err := u.wants(answers[i]); err != nil {
			return true, err
		} else if wants && !asks {
			asks = true
			u.what = append(u.what, what...)
		}
	}
	return asks, nil
}

// takeAnswer turns a script's answer to p into results.
func takeAnswer(p *plan, reply any) (now int64, left unanswered[*decision], err error) {
	words, now, err := open(reply)
	if err != nil {
		return 0, left, err
	}
	few := someStates.Get().(*[8]store.State)
	defer someStates.Put(few)
	for i := range p.shapes {
		s := &p.shapes[i]
		k := len(s.records)
		states := few[:]
		if k > len(few) {
			states = make([]store.State, k)
		}
		states = states[:k]
		if len(words) < 1+k*len(s.entries) {
			return now, left, fmt.Errorf("redisstore: the script's answer is %d words short", 1+k*len(s.entries)-len(words))
		}
		granted, _ := words[0].(int64)
		words = words[1:]
		n := len(s.entries)
		columns := words[:k*n]
		words = words[k*n:]
		for j := range s.entries {
			e := &s.entries[j]
			asks, err := left.asks(columns, j, n, e.decisions)
			if err != nil {
				return now, left, err
			}
			if asks {
				continue
			}
			for c := range states {
				if err = decode(&e.decisions[0].charges[c], columns[c*n+j], &states[c]); err != nil {
					return now, left, err
				}
			}
			for _, d := range e.decisions {
				if d.answer(now, states); d.granted {
					granted--
				}
			}
		}
		if granted != 0 {
			return now, left, errTwins
		}
	}
	return now, left, nil
}

// someStates are those of one decision at a time, to be reused.
var someStates = sync.Pool{New: func() any { return new([8]store.State) }}

// answer decides d against the states, and leaves them as they are afterwards.
func (d *decision) answer(now int64, states []store.State) {
	instant := store.Now{Steady: now, Wall: now}
	for i := range d.charges {
		if algorithms[d.charges[i].Limit.Algorithm()].leases {
			d.leased(instant, states)
			return
		}
	}
	d.granted = store.Decide(instant, d.charges, states, d.results)
}

// leased is answer for decisions that may hold leases: each has an id of its own, while
// the steps number the leases of a process.
func (d *decision) leased(now store.Now, states []store.State) {
	now.Lease = store.Lease(1)
	d.granted = store.Decide(now, d.charges, states, d.results)
	for i := range d.charges {
		if r := &d.results[i]; algorithms[d.charges[i].Limit.Algorithm()].leases && r.Receipt.Cost > 0 {
			r.Receipt.Lease = d.leases[i]
		}
	}
}

// settleAnswer turns a script's answer to groups of settlements into results.
func settleAnswer(groups [][]*settlement, reply any) (now int64, left unanswered[*settlement], err error) {
	words, now, err := open(reply)
	if err != nil {
		return 0, left, err
	}
	if len(words) != len(groups) {
		return now, left, fmt.Errorf("redisstore: the script answered %d of %d settlements", len(words), len(groups))
	}
	for i, group := range groups {
		wants, err := left.wants(words[i], group...)
		if err == nil && !wants {
			err = settledAnswer(group, now, words[i])
		}
		if err != nil {
			return now, left, err
		}
	}
	return now, left, nil
}

// settledAnswer turns the answer to a group into results: the state found, and of what is no
// string the one left by each settlement.
func settledAnswer(group []*settlement, now int64, found any) error {
	text, _ := found.(string)
	before, left, listed := strings.Cut(text, "|")
	if !listed {
		return group[0].answer(now, found)
	}
	if n := strings.Count(text, "|"); n != len(group) {
		return fmt.Errorf("redisstore: the script answered %d of %d releases", n, len(group))
	}
	for _, s := range group {
		var after string
		after, left, _ = strings.Cut(left, "|")
		if err := s.answerListed(now, before, after); err != nil {
			return err
		}
		before = after
	}
	return nil
}

func (s *settlement) answer(now int64, found any) error {
	err := decode(s.charge, found, &s.found[0])
	if err == nil {
		store.Amend(store.Now{Steady: now, Wall: now}, s.charge, &s.found[0], s.result)
	}
	return err
}

// answerListed is answer for what is no string. Entries of a log exist in the server only: the
// receipt doesn't depend on them, and the script's answer says what is left.
func (s *settlement) answerListed(now int64, before, after string) error {
	if err := s.answer(now, before); err != nil {
		return err
	}
	receipt := s.result.Receipt
	if err := decode(s.charge, after, &s.found[0]); err != nil {
		return err
	}
	s.look[0] = store.Charge{Key: s.charge.Key, Limit: s.charge.Limit}
	store.Decide(store.Now{Steady: now, Wall: now}, s.look[:], s.found[:], s.seen[:])
	*s.result = s.seen[0]
	s.result.Receipt = receipt
	return nil
}

// open removes the server's instant from an answer.
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
