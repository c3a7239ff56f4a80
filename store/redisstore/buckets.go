package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/store"
)

// Token buckets and leaky buckets.

// bucket returns the arguments that lua/tokenbucket.lua names: limit, how, capacity, by, tag,
// lifetime, grid.
func bucket(r *record) []any {
	t := &r.terms
	how := ""
	if t.Queue > 0 || r.spec.Debt {
		how = "0,1"
	}
	args := []any{bucketLimit(r), how, text(t.Capacity), text(t.Token), "", "", ""}
	if tag := tagOf(t); tag != "" {
		grid := gridOf(t)
		args[4], args[5], args[6] = tag, text((t.Capacity+grid)/1000+2), text(grid)
	}
	return args
}

// bucketLimit returns the argument limit.
func bucketLimit(r *record) string {
	t := &r.terms
	burst, queue := t.Capacity, t.Queue
	if !t.Scale.Wide {
		burst, queue = burst/t.Token, queue/t.Token
	}
	return fmt.Sprintf("%d,%d,%d,%d:%d:%d", t.Largest, boolean(r.spec.Debt), queue, burst, t.Token, t.Numbers.Unit)
}

func varyBucket(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c == nil {
		return
	}
	if c.MaxWait > 0 || c.Cost == 0 || c.Cost > r.terms.Largest || c.Cost != 1 && args[1] != "" {
		args[1] = maxWaitAndCost(r, c)
	}
	if c.Cost != 1 && c.Cost <= r.terms.Largest { // the product of a larger one may overflow
		args[3] = text(c.Cost * r.terms.Token)
	}
}

// maxWaitAndCost returns the argument how.
func maxWaitAndCost(r *record, c *store.Charge) string {
	return maxWait(c, r.terms.Patience) + "," + strconv.FormatInt(c.Cost, 10)
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

// bucketInUnits returns the arguments that lua/widebucket.lua names: limit, how.
func bucketInUnits(r *record) []any { return []any{bucketLimit(r), "0,1"} }

func varyBucketInUnits(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil && (c.Cost != 1 || c.MaxWait > 0) {
		args[1] = maxWaitAndCost(r, c)
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
