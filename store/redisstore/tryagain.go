package redisstore

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A node that is handing a slot over answers TRYAGAIN to a command of whose keys
// it has some and not the others, and the node that gets the slot does so as
// well. A batch is one command, so calls that could be decided, each with its own
// keys, would fail for travelling with others. Nothing of such a command was
// executed: they are sent again, in a command for each set of keys. Who asks for
// keys that are apart themselves still fails.
func separating[T any](send func(context.Context, []*ticket[T]), of func(*T) (at *site, keys []string, untouched bool)) func(context.Context, []*ticket[T]) {
	return func(ctx context.Context, batch []*ticket[T]) {
		send(ctx, batch)
		if len(batch) < 2 {
			return
		}
		var again []*ticket[T]
		several := false
		for _, t := range batch {
			at, keys, untouched := of(&t.what)
			if !isTryAgain(t.failed) || !untouched {
				continue
			}
			// What has one site goes in one command.
			at.tag = strings.Join(keys, " ")
			again = append(again, t)
			first, _, _ := of(&again[0].what)
			several = several || *at != *first
		}
		if several {
			send(ctx, again)
		}
	}
}

// isTryAgain reports whether a node said that it has not all of a command's keys.
func isTryAgain(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }

func partsOfTaking(w *taking) (*site, []string, bool) { return &w.site, w.keys, true }

// partsOfSettling: what was settled of a call in part, its other part having had
// to wait for the calendar, must not be settled again.
func partsOfSettling(w *settling) (*site, []string, bool) {
	return &w.site, w.keys, len(w.made) == len(w.charges)
}

// separate makes renewals again that failed in this way, each key's by itself,
// and returns them and the others.
func (s *Store) separate(ctx context.Context, told told, rs []*renewing, calls []call) ([]*renewing, []call) {
	var others, apart []*renewing
	var done, again []call
	for i, r := range rs {
		if len(r.keys) < 2 || !isTryAgain(calls[i].cmd.Err()) {
			others, done = append(others, r), append(done, calls[i])
			continue
		}
		for j, key := range r.keys {
			one := &renewing{site: r.site}
			one.add(key, r.ids[j])
			apart, again = append(apart, one), append(again, s.renewCall(told, one))
		}
	}
	if len(again) > 0 {
		s.exec(ctx, again)
	}
	return append(others, apart...), append(done, again...)
}
