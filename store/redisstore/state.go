package redisstore

import (
	"fmt"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// decode reads a state from a script's answer. The top of each algorithm's file in
// package lua documents what is kept for a key.
func decode(c *store.Charge, v any) (s store.State, err error) {
	is := s.Engine(engine.Access{})
	switch v := v.(type) {
	case nil:
		return s, nil
	case int64: // of what is no string, how much of it there is
		is.Live, is.A = v > 0, v
		return s, nil
	case string:
		if v == "" {
			return s, nil
		}
		if is.Live = true; !algorithms[c.Limit.Algorithm()].state(v, is) {
			return store.State{}, nil
		}
		return s, nil
	}
	return s, fmt.Errorf("redisstore: the script answered with a %T", v)
}
