package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/stint-go/stint/store"
)

// decode reads a state as the scripts answer it. What they keep for a key is
// described at the top of each algorithm's file in package lua.
func decode(c *store.Charge, v any) (s store.State, err error) {
	switch v := v.(type) {
	case nil:
		return s, nil
	case int64: // slots held
		s.Live, s.A = v > 0, v
		return s, nil
	case string:
		if v == "" {
			return s, nil
		}
		if c.Limit.Algorithm() == store.Ban {
			return decodeBan(v)
		}
		var w [8]int64
		n, ok := words(v, &w)
		if !ok {
			return s, fmt.Errorf("redisstore: a state that nobody here wrote: %.80q", v)
		}
		s.Live = true
		fill(c.Limit.Algorithm(), v, w[:n], &s)
		return s, nil
	}
	return s, fmt.Errorf("redisstore: the script answered with a %T", v)
}

func fill(a store.Algorithm, v string, w []int64, s *store.State) {
	get := func(i int) int64 {
		if i < len(w) {
			return w[i]
		}
		return 0
	}
	switch a {
	case store.TokenBucket, store.LeakyBucket, store.IntervalBucket, store.WarmUp:
		if len(w) == 1 { // an integer that begins with a tag
			if len(v) != 19 || v[0] < '1' || v[0] > '9' { // somebody else's
				s.Live = false
				return
			}
			s.A = w[0] % 1_000_000_000_000_000
			s.Numbers = store.Numbers{Token: untag(v[:4]), Unit: store.Scale{PerTick: 1}.Code()}
			return
		}
		s.A, s.Numbers = get(0), store.Numbers{Token: get(1), Unit: get(2)}
		s.B, s.C, s.D, s.E = get(3), get(4), get(5), get(6)
	case store.FixedWindow:
		s.A, s.B, s.C, s.Numbers = get(0), get(1), get(3), store.Numbers{Token: get(4), Unit: get(2)}
	case store.SlidingWindow, store.SlidingLog:
		// Newest entry, sum, and the entry with whose leaving there is room.
		s.A, s.B, s.C = get(0), get(1), get(2)
		s.Numbers, s.E = store.Numbers{Token: get(3), Unit: get(4)}, get(5)
		if len(w) > 6 {
			s.Log = []store.Entry{{At: w[6], Units: math.MaxInt64 / 2}}
		}
		s.Live = s.C > 0
	case store.Concurrency:
		s.A = get(0)
		s.Live = s.A > 0
	}
}

// decodeBan reads a ban's state, which may be long.
func decodeBan(v string) (store.State, error) {
	s := store.State{Live: true}
	for i := 0; ; i++ {
		word, rest, more := strings.Cut(v, ":")
		at, err := strconv.ParseInt(word, 10, 64)
		switch {
		case err != nil:
			return s, fmt.Errorf("redisstore: a state that nobody here wrote: %.80q", v)
		case i == 0:
			s.A = at
		case i == 1:
			s.B = at
		case i == 2:
			s.Numbers.Unit = at
		default:
			s.Log = append(s.Log, store.Entry{At: at, Units: 1})
		}
		if !more {
			return s, nil
		}
		v = rest
	}
}

func untag(tag string) int64 {
	m, _ := strconv.ParseInt(tag[1:], 10, 64)
	for range tag[0] - '1' {
		m *= 10
	}
	return m
}

// words parses numbers with colons between them.
func words(v string, w *[8]int64) (n int, ok bool) {
	for more := true; more; n++ {
		var word string
		if word, v, more = strings.Cut(v, ":"); n == len(w) {
			return 0, false
		}
		if word == "" && !more && n > 0 {
			return n, true
		}
		x, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, false
		}
		w[n] = x
	}
	return n, true
}
