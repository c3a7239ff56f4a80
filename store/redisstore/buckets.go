package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Token buckets and leaky buckets.

func bucket(r *record) []any {
	t, s := &r.terms, &r.spec
	limit, words := bucketLimit(r)
	how := ""
	if t.Queue > 0 || s.Debt {
		how = "0,1"
	}
	args := []any{limit, how, text(t.Capacity), words, text(t.Token), fmt.Sprintf("%d,%d", t.Scale.PerTick, t.Scale.Tick()), ""}
	if tag := tagOf(t); tag != "" {
		grid := gridOf(t)
		args[3], args[5], args[6] = tag, text((t.Capacity+grid)/1000+2), text(grid)
	}
	return args
}

// bucketLimit returns what only some charges need, and the end of a state.
func bucketLimit(r *record) (limit, words string) {
	t := &r.terms
	words = fmt.Sprintf(":%d:%d", t.Token, t.Numbers.Unit)
	burst, queue := t.Capacity, t.Queue
	if !t.Scale.Wide {
		burst, queue = burst/t.Token, queue/t.Token
	}
	return fmt.Sprintf("%d,%d,%d,%d,%s,%d,%d,%d,%d,%d", t.Queue, t.Largest, boolean(r.spec.Debt), t.Longest, words, t.Scale.PerTick, t.Scale.Tick(), t.Capacity, burst, queue), words
}

func varyBucket(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c == nil {
		return
	}
	if c.Cost > r.terms.Largest { // nothing is worked out of it
		args[1] = "0," + strconv.FormatInt(c.Cost, 10)
		return
	}
	if c.Cost != 1 {
		args[4] = text(c.Cost * r.terms.Token)
	}
	if c.MaxWait > 0 || c.Cost != 1 && args[1] != "" || c.Cost == 0 {
		args[1] = maxWait(c, r.terms.Patience) + "," + strconv.FormatInt(c.Cost, 10)
	}
}

func bucketState(found string, s *engine.State) bool {
	if strings.Contains(found, ":") {
		return bucketWords(found, s)
	}
	n, err := strconv.ParseInt(found, 10, 64) // an integer that begins with a tag
	if err != nil || len(found) != 19 || found[0] < '1' {
		return false
	}
	s.A = n % 1_000_000_000_000_000
	s.Numbers = engine.Numbers{Token: untag(found[:4]), Unit: engine.Scale{PerTick: 1}.Code()}
	return s.Numbers.Token > 0
}

// bucketWords decodes A:token:unit, of a wide scale what is beyond A, and then B:C, or 0:C
// and the Log.
func bucketWords(found string, s *engine.State) bool {
	w := make([]int64, 0, 16)
	for word := range strings.SplitSeq(found, ":") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return false
		}
		w = append(w, n)
	}
	if len(w) < 3 || w[1] <= 0 || w[2] < 8 {
		return false
	}
	s.A, s.Numbers = w[0], engine.Numbers{Token: w[1], Unit: w[2]}
	w = w[3:]
	if scale := engine.ScaleOf(s.Numbers.Unit); scale.Wide && len(w) > 0 {
		s.A, s.Low = scale.Join(s.A, w[0])
		w = w[1:]
	} else if scale.Wide {
		s.A, s.Low = scale.Join(s.A, 0)
	}
	if len(w)%2 == 1 {
		return false
	}
	if len(w) > 0 {
		s.B, s.C = w[0], w[1]
	}
	for i := 2; i < len(w); i += 2 {
		s.Log = append(s.Log, engine.Entry{At: w[i], Units: w[i+1]})
	}
	return true
}

func bucketInUnits(r *record) []any {
	limit, _ := bucketLimit(r)
	return []any{limit, "0,1"}
}

func varyBucketInUnits(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil && (c.Cost != 1 || c.MaxWait > 0) {
		args[1] = maxWait(c, r.terms.Patience) + "," + strconv.FormatInt(c.Cost, 10)
	}
}

// tagOf returns the four digits that name a rate in front of the instant that is its
// whole state, or "": see tokenbucket.lua. Both together have to stay below 2^63.
func tagOf(t *engine.Terms) string {
	const twoYears = 2 * 366 * 24 * 3600 * 1_000_000
	if t.Scale != (engine.Scale{PerTick: 1}) || t.Capacity > twoYears {
		return ""
	}
	m, k := t.Token, 0
	for m%10 == 0 && k < 8 {
		m /= 10
		k++
	}
	for m < 100 && k > 0 {
		m *= 10
		k--
	}
	if m > 999 || k == 8 && m > 222 {
		return ""
	}
	return strconv.FormatInt(int64(k+1)*1000+m, 10)
}

func untag(tag string) int64 {
	m, _ := strconv.ParseInt(tag[1:], 10, 64)
	for range tag[0] - '1' {
		m *= 10
	}
	return m
}

// gridOf returns the grid of plain states (tokenbucket.lua), in microseconds: about ten
// tokens, so that one charge in ten renews a lifetime, but at most ten seconds, which
// is how much longer than necessary a key may live.
func gridOf(t *engine.Terms) int64 {
	us := int64(10_000)
	for us < 10*t.Token && us < 10_000_000 {
		us *= 10
	}
	return us
}
