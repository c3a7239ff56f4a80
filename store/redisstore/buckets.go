package redisstore

import (
	"fmt"
	"slices"
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
	n := t.Numbers
	limit := fmt.Sprintf("%d,%d,%d:%d:%d:%d", t.Largest, boolean(r.spec.Debt), t.Queue/t.Token, n.Token, n.Unit, n.Burst)
	args := []any{limit, how, text(t.Capacity), text(t.Token), "", "", ""}
	if tag := tagOf(n); tag != "" {
		grid := gridOf(t)
		args[4], args[5], args[6] = tag, text((t.Capacity+grid)/1000+2), text(grid)
	}
	return args
}

func varyBucket(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c == nil {
		return
	}
	if c.MaxWait > 0 || c.Cost == 0 || c.Cost > r.terms.Largest || c.Cost != 1 && args[1] != "" {
		args[1] = maxWait(c, r.terms.Patience) + "," + strconv.FormatInt(c.Cost, 10)
	}
	if c.Cost != 1 && c.Cost <= r.terms.Largest { // the product of a larger one may overflow
		args[3] = text(c.Cost * r.terms.Token)
	}
}

// bucketState decodes a plain state, or tat:token:unit:burst and what few have behind that.
func bucketState(found string, s *engine.State) bool {
	if len(found) == 19 && !strings.ContainsFunc(found, func(c rune) bool { return c < '0' || '9' < c }) {
		s.A, _ = strconv.ParseInt(found[4:], 10, 64)
		s.Numbers = untag(found[:4])
		return s.Numbers != engine.Numbers{}
	}
	var few [24]int64
	w := numerals(found, few[:0])
	if len(w) < 4 {
		return false
	}
	s.A, s.Numbers = w[0], engine.Numbers{Token: w[1], Unit: w[2], Burst: w[3]}
	if len(w) > 4 {
		s.B, w = w[4], w[5:]
	} else {
		w = nil
	}
	n := s.Numbers
	return n.Token >= 1 && n.Token < exact/1000 && counted(n.Unit) && n.Burst >= 0 &&
		float64(n.Burst)*float64(n.Token) < exact && levels(w, s)
}

const exact = 1 << 53

// usual and usualPeriods are the numbers that have a tag (tokenbucket.lua): so many per
// period, with such a burst.
var (
	usual = [...]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 80, 100, 120, 150, 200, 250, 300, 400,
		500, 600, 750, 800, 1000, 1200, 1500, 2000, 2500, 3000, 5000, 6000, 10_000, 20_000, 50_000, 100_000, 1_000_000, 10_000_000}
	usualPeriods = [...]int64{1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000}
)

// tagOf returns the four digits that name usual numbers in front of the instant that is the
// whole state, or "". Both together have to stay below 2^63.
func tagOf(n engine.Numbers) string {
	const twoYears = 2 * 366 * 24 * 3600 * 1_000_000
	burst := slices.Index(usual[:], n.Burst)
	if n.Unit != (engine.Scale{PerTick: 1}).Code() || burst < 0 || n.Burst > twoYears/n.Token {
		return ""
	}
	for i, period := range usualPeriods {
		if units := slices.Index(usual[:], period/n.Token); period%n.Token == 0 && units >= 0 {
			return strconv.Itoa(1000 + (i*len(usual)+units)*len(usual) + burst)
		}
	}
	return ""
}

func untag(tag string) (n engine.Numbers) {
	code, _ := strconv.Atoi(tag)
	code -= 1000
	if code < 0 || code >= len(usualPeriods)*len(usual)*len(usual) {
		return n
	}
	period, units := usualPeriods[code/len(usual)/len(usual)], usual[code/len(usual)%len(usual)]
	if period%units != 0 {
		return n
	}
	return engine.Numbers{Token: period / units, Unit: engine.Scale{PerTick: 1}.Code(), Burst: usual[code%len(usual)]}
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
