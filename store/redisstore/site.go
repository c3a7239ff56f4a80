package redisstore

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/store/redisstore/internal/batch"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// layout says which keys one command may have.
type layout uint8

const (
	oneServer layout = iota // any
	bySlot                  // those of one slot of a cluster
	byTag                   // those with one tag, which a ring has on one server
)

// site identifies the keys that one command may have: all of its keys are of one site.
type site struct {
	slot uint16
	tag  string
}

// siteOf returns the site of a key.
func (l layout) siteOf(key string) site {
	switch l {
	case bySlot:
		return site{slot: wire.SlotOf(wire.TagIn(key))}
	case byTag:
		return site{tag: wire.TagIn(key)}
	}
	return site{}
}

// guardKey is the key that remembers, for a store with a clock of its own, the newest
// instant that the scripts of a site were called with.
func (l layout) guardKey(prefix string, at site) string {
	switch l {
	case bySlot:
		return prefix + "{" + wire.SlotTag(at.slot) + "}%clock"
	case byTag:
		return prefix + "{" + at.tag + "}%clock"
	}
	return prefix + "%clock"
}

// groupBySite groups what goes into one command, in order.
func groupBySite[T any](calls []*batch.Call[T], siteOf func(*T) site) [][]*batch.Call[T] {
	first := siteOf(&calls[0].Body)
	same := true
	for _, c := range calls[1:] {
		same = same && siteOf(&c.Body) == first
	}
	if same {
		return [][]*batch.Call[T]{calls}
	}
	at := make(map[site]int)
	var groups [][]*batch.Call[T]
	for _, c := range calls {
		one := siteOf(&c.Body)
		i, known := at[one]
		if !known {
			i = len(groups)
			at[one] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// resendApart has send resend calls that failed because a slot is being migrated. A node that is handing
// over a slot answers TRYAGAIN to a command if it has only some of its keys, and so
// does the node that gets the slot. A batch is one command, so calls that could be
// decided, each with its own keys, would fail because they travel with others. Nothing
// of such a command was executed: the calls are sent again, in a command for each set
// of keys. A call whose own keys are on two nodes still fails.
func resendApart[T any](
	send func(context.Context, []*batch.Call[T]), parts func(*T) (at *site, keys []string, untouched bool),
) func(context.Context, []*batch.Call[T]) {
	return func(ctx context.Context, calls []*batch.Call[T]) {
		send(ctx, calls)
		if len(calls) < 2 {
			return
		}
		var again []*batch.Call[T]
		several := false
		for _, c := range calls {
			at, keys, untouched := parts(&c.Body)
			if !isTryAgain(c.Failed) || !untouched {
				continue
			}
			// Calls with one site go in one command.
			at.tag = strings.Join(keys, " ")
			again = append(again, c)
			first, _, _ := parts(&again[0].Body)
			several = several || *at != *first
		}
		if several {
			send(ctx, again)
		}
	}
}

// isTryAgain reports whether a node said that it doesn't have all keys of a command.
func isTryAgain(err error) bool { return err != nil && redis.HasErrorPrefix(err, "TRYAGAIN") }
