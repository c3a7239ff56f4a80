package redisstore

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store/redisstore/internal/batch"

	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// separating resends calls that a slot migration has kept apart. A node that is handing
// over a slot answers TRYAGAIN to a command if it has only some of its keys, and so
// does the node that gets the slot. A batch is one command, so calls that could be
// decided, each with its own keys, would fail because they travel with others. Nothing
// of such a command was executed: the calls are sent again, in a command for each set
// of keys. A call whose own keys are apart still fails.
func separating[T any](send func(context.Context, []*batch.Call[T]), of func(*T) (at *site, keys []string, untouched bool)) func(context.Context, []*batch.Call[T]) {
	return func(ctx context.Context, calls []*batch.Call[T]) {
		send(ctx, calls)
		if len(calls) < 2 {
			return
		}
		var again []*batch.Call[T]
		several := false
		for _, t := range calls {
			at, keys, untouched := of(&t.Body)
			if !isTryAgain(t.Failed) || !untouched {
				continue
			}
			// Calls with one site go in one command.
			at.tag = strings.Join(keys, " ")
			again = append(again, t)
			first, _, _ := of(&again[0].Body)
			several = several || *at != *first
		}
		if several {
			send(ctx, again)
		}
	}
}

// isTryAgain reports whether a node said that it doesn't have all keys of a command.
func isTryAgain(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }

func partsOfTaking(w *taking) (*site, []string, bool) { return &w.site, w.Keys, true }

// partsOfSettling: what has been settled must not be settled again with the rest.
func partsOfSettling(w *settling) (*site, []string, bool) { return &w.site, w.keys, !w.settled }

// separate repeats renewals that failed this way, each key's by itself, and returns
// them with the others. What says that a key was reset mostly isn't there, so a node that hands over
// the slot would refuse a command with both: the key stands in its place, and no lost lease is
// entered.
func (s *Store) separate(ctx context.Context, times wire.Times, rs []*renewal, commands []command) ([]*renewal, []command) {
	var others, apart []*renewal
	var done, again []command
	for i, r := range rs {
		if !isTryAgain(commands[i].cmd.Err()) {
			others, done = append(others, r), append(done, commands[i])
			continue
		}
		for j, key := range r.Keys {
			one := &renewal{site: r.site}
			one.Add(key, r.Leases[j])
			apart, again = append(apart, one), append(again, s.renewalOf(times, one, []string{key, key}, wire.Never))
		}
	}
	if len(again) > 0 {
		s.exec(ctx, again)
	}
	return append(others, apart...), append(done, again...)
}
