package wire

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// Args returns the script that decides p and its arguments, with room before them.
func (p *TakeCall) Args(t Times, room int) (*scripts.Script, []any) {
	n := room + 3
	for i := range p.shapes {
		n += 6
		for _, l := range p.shapes[i].limits {
			n += len(l.args)
		}
	}
	a := arguments{list: make([]any, room, n), Times: t}
	a.list = append(a.list, t.Clock)
	a.number(int64(len(p.shapes)))
	for i := range p.shapes {
		a.shape(&p.shapes[i], p.shared)
	}
	a.strings(p.strings)
	return scripts.Take(a.set), a.list
}

func (a *arguments) shape(s *shape, shared bool) {
	charges := s.model().Charges
	if len(charges) > 1 {
		a.set |= scripts.Several
	}
	more := shared || s.repeated || s.leases
	a.add(s.kind(more))
	a.number(int64(len(s.entries)))
	if more {
		a.add(s.keyNumbers(shared), s.runEnds(), s.repetitions(), s.leaseIDs())
	}
	for i, l := range s.limits {
		if l.CountsDenied {
			a.counted = countedBy(charges, i)
		}
		a.charge(l, &charges[i])
	}
}

// kind says whether there is more, followed by a letter for each charge.
func (s *shape) kind(more bool) any {
	if !more && len(s.limits) == 1 && s.limits[0].letter == 'b' && !s.model().Charges[0].DryRun {
		return "-b"
	}
	kind := make([]byte, 1, 8)
	kind[0] = '-'
	if more {
		kind[0] = '+'
	}
	for i, l := range s.limits {
		letter := l.letter
		if s.model().Charges[i].DryRun {
			letter -= 'a' - 'A'
		}
		kind = append(kind, letter)
	}
	return string(kind)
}

// keyNumbers returns the numbers of the entries' keys, by column, if keys are shared.
func (s *shape) keyNumbers(shared bool) (numbers []byte) {
	if !shared {
		return nil
	}
	for column := range s.limits {
		for i := range s.entries {
			numbers = binary.BigEndian.AppendUint16(numbers, uint16(s.entries[i].keys[column]))
		}
	}
	return numbers
}

// runEnds returns where runs of entries end, if there are several.
func (s *shape) runEnds() (ends []byte) {
	if len(s.runs) == 0 {
		return nil
	}
	for _, end := range s.runs {
		ends = binary.BigEndian.AppendUint16(ends, uint16(end))
	}
	return binary.BigEndian.AppendUint16(ends, uint16(len(s.entries)))
}

// repetitions returns how many times each entry is decided, if some are several times.
func (s *shape) repetitions() (times []byte) {
	if !s.repeated {
		return nil
	}
	for i := range s.entries {
		times = binary.BigEndian.AppendUint16(times, uint16(len(s.entries[i].decisions)))
	}
	return times
}

// leaseIDs returns the ids of the leases that the decisions may take.
func (s *shape) leaseIDs() (ids []byte) {
	if !s.leases {
		return nil
	}
	for i := range s.entries {
		e := &s.entries[i]
		for _, d := range e.decisions {
			for j := range d.Charges {
				if s.limits[j].Leases {
					ids = append(ids, d.Leases[j][:]...)
				}
			}
		}
	}
	return ids
}

// Answer turns the script's answer into the results of the call's decisions.
func (p *TakeCall) Answer(reply any) (now int64, left Unanswered[*Decision], err error) {
	words, now, err := instantOf(reply)
	if err != nil {
		return 0, left, err
	}
	room := fewStates.Get().(*[8]store.State)
	defer fewStates.Put(room)
	for i := range p.shapes {
		s := &p.shapes[i]
		states := room[:]
		if len(s.limits) > len(states) {
			states = make([]store.State, len(s.limits))
		}
		if words, err = s.answer(words, now, states[:len(s.limits)], &left); err != nil {
			return now, left, err
		}
	}
	return now, left, nil
}

// fewStates are those of one decision at a time, to be reused.
var fewStates = sync.Pool{New: func() any { return new([8]store.State) }}

// answer decides the shape's decisions from the words of an answer that are about them, and
// returns those behind. states is room for those of one decision.
func (s *shape) answer(words []any, now int64, states []store.State,
	left *Unanswered[*Decision]) (behind []any, err error) {
	n := len(s.entries)
	if need := 1 + len(states)*n; len(words) < need {
		return nil, fmt.Errorf("redisstore: the script's answer is %d words short", need-len(words))
	}
	granted, _ := words[0].(int64)
	columns, behind := words[1:1+len(states)*n], words[1+len(states)*n:]
	for j := range s.entries {
		decisions := s.entries[j].decisions
		question := false
		for c := range states {
			asks, err := left.isQuestion(columns[c*n+j])
			if err != nil {
				return nil, err
			}
			question = question || asks
		}
		if question {
			left.Items = append(left.Items, decisions...)
			continue
		}
		for c := range states {
			if err = decode(&decisions[0].Charges[c], columns[c*n+j], &states[c]); err != nil {
				return nil, err
			}
		}
		for _, d := range decisions {
			if d.decide(now, states); d.Granted {
				granted--
			}
		}
	}
	if granted != 0 {
		return nil, errTwins
	}
	return behind, nil
}

// decide decides d against the states, and leaves them as they are afterwards.
func (d *Decision) decide(now int64, states []store.State) {
	instant := store.Now{Steady: now, Wall: now}
	for i := range d.Charges {
		if TraitsOf(d.Charges[i].Limit).Leases {
			d.decideLeases(instant, states)
			return
		}
	}
	d.Granted = store.Decide(instant, d.Charges, states, d.Results)
}

// decideLeases is decide for decisions that may take leases. On Redis each lease has an id of its own, so
// the number that the step gives it is replaced.
func (d *Decision) decideLeases(now store.Now, states []store.State) {
	now.Lease = store.Lease(1) // any number will do
	d.Granted = store.Decide(now, d.Charges, states, d.Results)
	for i := range d.Charges {
		if r := &d.Results[i]; TraitsOf(d.Charges[i].Limit).Leases && r.Receipt.Cost > 0 {
			r.Receipt.Lease = d.Leases[i]
		}
	}
}
