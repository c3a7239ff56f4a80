package wire

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/store"
)

// The places of the arguments of lua/tokenbucket.lua, which says what they mean, for token and leaky
// buckets.
const (
	bucketLimit = iota
	bucketHow
	bucketCapacity
	bucketBy
	bucketTag
	bucketLifetime
	bucketGrid
	bucketArguments // how many there are
)

// bucketArgs returns the arguments for a charge of one token that doesn't wait; varyBucket changes them
// for others.
func bucketArgs(l *limit) []any {
	t := &l.terms
	n := t.Numbers
	queue := t.Queue / t.Token // in tokens
	args := make([]any, bucketArguments)
	args[bucketLimit] = fmt.Sprintf("%d,%d,%d:%d:%d:%d", t.Largest, boolean(l.spec.Debt), queue, n.Token, n.Unit, n.Burst)
	args[bucketHow] = ""
	if t.Queue > 0 || l.spec.Debt {
		args[bucketHow] = "0,1" // MaxWait and cost
	}
	args[bucketCapacity] = text(t.Capacity)
	args[bucketBy] = text(t.Token)
	args[bucketTag], args[bucketLifetime], args[bucketGrid] = "", "", ""
	if tag := tagOf(n); tag != "" { // the limit's states may be plain
		grid := gridOf(t)
		args[bucketTag], args[bucketLifetime], args[bucketGrid] = tag, text(plainLifetime(t, grid)), text(grid)
	}
	return args
}

// plainLifetime returns how long the key of a plain state lives, in milliseconds: the time in which an
// empty bucket refills, and a grid more, because charges renew the lifetime only once per grid. It is
// rounded up, with a millisecond to spare. The units of a limit with a tag are microseconds.
func plainLifetime(t *algorithm.Terms, grid int64) int64 { return (t.Capacity+grid)/1000 + 2 }

// varyBucket changes the arguments of bucketArgs for a charge that costs more or less, or may wait.
func varyBucket(l *limit, args []any, c *store.Charge, _ *Times) {
	if c == nil {
		return
	}
	if c.MaxWait > 0 || c.Cost == 0 || c.Cost > l.terms.Largest || c.Cost != 1 && args[bucketHow] != "" {
		args[bucketHow] = maxWait(c, l.terms.Patience) + "," + strconv.FormatInt(c.Cost, 10)
	}
	if c.Cost != 1 && c.Cost <= l.terms.Largest { // the product of a larger one may overflow
		args[bucketBy] = text(c.Cost * l.terms.Token)
	}
}

func boolean(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// bucketState decodes a plain state, or tat:token:unit:burst and what few have behind that:
// ahead, keptUntil, refundsFrom and the levels.
func bucketState(found string, s *algorithm.State) bool {
	if len(found) == plainDigits && leadingDigits(found) == plainDigits {
		s.W[algorithm.Tat], _ = strconv.ParseInt(found[tagDigits:], 10, 64)
		s.Numbers = numbersOf(found[:tagDigits])
		return s.Numbers != algorithm.Numbers{}
	}
	var few [24]int64
	w := decodeNumbers(found, few[:0])
	if len(w) < 4 {
		return false
	}
	tat, n, more := w[0], algorithm.Numbers{Token: w[1], Unit: w[2], Burst: w[3]}, w[4:]
	s.W[algorithm.Tat], s.Numbers = tat, n
	if len(more) > 0 {
		s.W[algorithm.Ahead], more = more[0], more[1:]
	}
	return n.Token >= 1 && n.Token < exact/1000 && validScale(n.Unit) && n.Burst >= 0 &&
		float64(n.Burst)*float64(n.Token) < exact && decodeLevels(more, s)
}

// A plain state is a tag and a tat, in so many digits.
const (
	plainDigits = 19
	tagDigits   = 4
)

// usualUnits and usualPeriods are the numbers that have a tag (tokenbucket.lua): so many per
// period, with such a burst.
var (
	usualUnits = [...]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 80, 100, 120, 150, 200,
		250, 300, 400, 500, 600, 750, 800, 1000, 1200, 1500, 2000, 2500, 3000, 5000, 6000, 10_000, 20_000, 50_000,
		100_000, 1_000_000, 10_000_000}
	usualPeriods = [...]int64{1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000}
)

// firstTag is the lowest tag, so that all have four digits.
const firstTag = 1000

// tagOf returns the four digits that name usual numbers in front of the instant that is the
// whole state, or "". Both together have to stay below 2^63.
func tagOf(n algorithm.Numbers) string {
	const twoYears = 2 * 366 * 24 * 3600 * 1_000_000
	burst := slices.Index(usualUnits[:], n.Burst)
	if n.Unit != (algorithm.Scale{PerTick: 1}).Code() || burst < 0 || n.Burst > twoYears/n.Token {
		return ""
	}
	for i, period := range usualPeriods {
		if units := slices.Index(usualUnits[:], period/n.Token); period%n.Token == 0 && units >= 0 {
			return strconv.Itoa(firstTag + (i*len(usualUnits)+units)*len(usualUnits) + burst)
		}
	}
	return ""
}

// numbersOf returns the numbers that a tag names, or none.
func numbersOf(tag string) (n algorithm.Numbers) {
	code, _ := strconv.Atoi(tag)
	code -= firstTag
	if code < 0 || code >= len(usualPeriods)*len(usualUnits)*len(usualUnits) {
		return n
	}
	period, units := usualPeriods[code/len(usualUnits)/len(usualUnits)], usualUnits[code/len(usualUnits)%len(usualUnits)]
	if period%units != 0 {
		return n
	}
	burst := usualUnits[code%len(usualUnits)]
	return algorithm.Numbers{Token: period / units, Unit: algorithm.Scale{PerTick: 1}.Code(), Burst: burst}
}

// gridOf returns the grid of plain states (tokenbucket.lua), in microseconds: about ten
// tokens, so that one charge in ten renews a lifetime, but at most ten seconds, which
// is how much longer than necessary a key may live.
func gridOf(t *algorithm.Terms) int64 {
	us := int64(10_000)
	for us < 10*t.Token && us < 10_000_000 {
		us *= 10
	}
	return us
}
