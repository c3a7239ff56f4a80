package redisstore

import (
	"fmt"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// decode reads a state from a script's answer into s. The top of each algorithm's file in
// package lua documents what is kept for a key.
func decode(c *store.Charge, v any, s *store.State) error {
	of := &algorithms[c.Limit.Algorithm()]
	is := s.Engine(engine.Access{})
	log := is.Log[:0]
	*s = store.State{}
	if of.leases {
		is.Log = log // the steps append to it: a state that is reused keeps its room
	}
	switch v := v.(type) {
	case nil:
		return nil
	case int64: // of what is no string, how much of it there is
		is.Live, is.A = v > 0, v
		return nil
	case string:
		if v == "" {
			return nil
		}
		if is.Live = true; !of.state(v, is) {
			*s = store.State{}
		}
		return nil
	}
	return fmt.Errorf("redisstore: the script answered with a %T", v)
}
