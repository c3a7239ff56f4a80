package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// Settlement is an earlier charge, its result to be filled in, and its key.
type Settlement struct {
	Charge *store.Charge
	Result *store.Result
	Key    string
	// UnlessReset: settle only if the key hasn't been reset since it was charged.
	UnlessReset bool
	// BanFor, if positive, bans the key by hand for so many microseconds: Charge is on a Ban, and its cost has
	// no meaning.
	BanFor int64

	// Room for the steps that work out the result.
	state     [1]store.State
	noCharge  [1]store.Charge
	remaining [1]store.Result
}

// Group groups settlements that the script makes as one: releases of slots of one key,
// unless something else is settled there in between. Those of a group, and the groups of a
// key, keep their order.
func Group(ss []*Settlement) (groups [][]*Settlement) {
	if len(ss) == 1 {
		return [][]*Settlement{ss}
	}
	last := make(map[string]int, len(ss)) // the group of a key
	for i, s := range ss {
		at, known := last[s.Key]
		if known && s.releases() && groups[at][0].releases() && s.Charge.Limit == groups[at][0].Charge.Limit {
			groups[at] = append(groups[at], s)
			continue
		}
		last[s.Key] = len(groups)
		groups = append(groups, ss[i:i+1:i+1])
	}
	return groups
}

// releases reports whether s releases a slot.
func (s *Settlement) releases() bool {
	return s.Charge.Cost == 0 && !s.UnlessReset && TraitsOf(s.Charge.Limit).Leases
}

// SettleArgs returns the script that settles groups made by Group, its keys and its
// arguments, with room before them.
func SettleArgs(groups [][]*Settlement, t Times, room int) (script *scripts.Script, keys []string, args []any) {
	a := arguments{list: make([]any, room, room+3+15*len(groups)), Times: t}
	strings := 0
	keys = make([]string, 0, len(groups))
	a.add(t.Clock)
	a.number(int64(len(groups)))
	for _, group := range groups {
		s := group[0]
		i := slices.Index(keys, s.Key)
		if i < 0 {
			i = len(keys)
			keys = append(keys, s.Key)
		}
		c := s.Charge
		l := argsOf(c.Limit)
		a.add(letters[l.letter])
		a.number(int64(i + 1))
		a.number(c.Cost)
		a.number(c.Receipt.Cost)
		a.number(c.Receipt.Instant)
		a.number(c.Receipt.Mark)
		ids := c.Receipt.Lease[:]
		for _, s := range group[1:] {
			ids = append(ids, s.Charge.Receipt.Lease[:]...)
		}
		a.add(ids)
		if s.UnlessReset {
			keys = append(keys, ResetKey(s.Key))
			a.add(strconv.Itoa(len(keys)) + "," + strconv.FormatInt(c.Receipt.Instant, 10))
		} else {
			a.add("")
		}
		a.charge(l, nil)
		if s.BanFor > 0 {
			a.list[len(a.list)-1] = text(s.BanFor) // counts
		}
		if !l.listed || s.UnlessReset {
			strings = len(keys)
		}
	}
	a.strings(strings)
	return scripts.Settle(a.set), keys, a.list
}

// letters holds the letters of algorithms, as arguments.
var letters = func() (a ['z' + 1]any) {
	for i := range a {
		a[i] = string(rune(i))
	}
	return a
}()

// SettleAnswer turns a script's answer to groups of settlements into results.
func SettleAnswer(groups [][]*Settlement, reply any) (now int64, left Unanswered[*Settlement], err error) {
	words, now, err := instantOf(reply)
	if err != nil {
		return 0, left, err
	}
	if len(words) != len(groups) {
		return now, left, fmt.Errorf("redisstore: the script answered %d of %d settlements", len(words), len(groups))
	}
	for i, group := range groups {
		question, err := left.isQuestion(words[i])
		switch {
		case err != nil:
		case question:
			left.Items = append(left.Items, group...)
		default:
			err = settleGroup(group, now, words[i])
		}
		if err != nil {
			return now, left, err
		}
	}
	return now, left, nil
}

// settleGroup turns the answer to a group into results: the state found, and of what is no
// string the one left by each settlement.
func settleGroup(group []*Settlement, now int64, answer any) error {
	text, _ := answer.(string)
	before, left, listed := strings.Cut(text, "|")
	if !listed {
		return group[0].settle(now, answer)
	}
	if n := strings.Count(text, "|"); n != len(group) {
		return fmt.Errorf("redisstore: the script answered %d of %d releases", n, len(group))
	}
	for _, s := range group {
		var after string
		after, left, _ = strings.Cut(left, "|")
		if err := s.settleListed(now, before, after); err != nil {
			return err
		}
		before = after
	}
	return nil
}

// settle works out the result from the state that the script found.
func (s *Settlement) settle(now int64, found any) error {
	if err := decode(s.Charge, found, &s.state[0]); err != nil {
		return err
	}
	if at := (store.Now{Steady: now, Wall: now}); s.BanFor > 0 {
		store.BanFor(at, s.Charge.Limit, time.Duration(s.BanFor)*time.Microsecond, &s.state[0], s.Result)
	} else {
		store.Amend(at, s.Charge, &s.state[0], s.Result)
	}
	return nil
}

// settleListed is settle for what is no string. Entries of a log exist in the server only: the
// receipt doesn't depend on them, and the script's answer says what is left.
func (s *Settlement) settleListed(now int64, before, after string) error {
	if err := s.settle(now, before); err != nil {
		return err
	}
	receipt := s.Result.Receipt
	if err := decode(s.Charge, after, &s.state[0]); err != nil {
		return err
	}
	s.noCharge[0] = store.Charge{Key: s.Charge.Key, Limit: s.Charge.Limit}
	store.Decide(store.Now{Steady: now, Wall: now}, s.noCharge[:], s.state[:], s.remaining[:])
	*s.Result = s.remaining[0]
	s.Result.Receipt = receipt
	return nil
}
