package redisstore

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/engine"
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// algorithm is how the limits, charges and states of an algorithm are encoded for its
// script and decoded. Its file in package lua documents the arguments.
type algorithm struct {
	set    scripts.Set
	letter byte // by which the script knows it
	// What its keys end in: a letter, which TokenBucket has none of, and the number of the
	// format that is kept there, if that isn't the first. A release that keeps anything
	// which the one before can't read has another number: during a deployment each counts
	// by itself, so that both together let through no more than twice the rule
	// (TestTwoReleases). It is the number of all limits of the algorithm, also of those
	// whose states are as before: limits change their numbers and keep what has been used.
	key string
	// arguments returns the arguments of a charge of 1 that isn't a dry run and doesn't
	// wait.
	arguments func(*record) []any
	// vary changes them to those of c or, if c is nil, to what the instant requires.
	vary func(r *record, args []any, c *store.Charge, t *timeArgs)
	// state decodes what the script has found, and reports whether a store has written it.
	// A value in another format counts as never seen, there and here.
	state func(found string, s *engine.State) bool
	// alone: each charge is asked by itself, because the server returns what one needs
	// to know, of a list of entries.
	alone bool
	// The same for charges that may wait, which look into the calendar.
	aloneWaiting bool
	listed       bool // what is kept at a key isn't a string
	// For limits with a wide scale, if that makes a difference to the script.
	wide    *algorithm
	leases  bool // what is charged are leases
	stocked bool // WithPrefetch may take some ahead
	counts  bool // what is told is which charges' denials count
}

var algorithms = [...]algorithm{
	store.TokenBucket:    {set: scripts.TokenBucket, letter: 'b', key: "/2", arguments: bucket, vary: varyBucket, state: bucketState, stocked: true, wide: &wideBucket},
	store.LeakyBucket:    {set: scripts.TokenBucket, letter: 'b', key: "/l2", arguments: bucket, vary: varyBucket, state: bucketState, wide: &wideBucket},
	store.IntervalBucket: {set: scripts.IntervalBucket, letter: 'i', key: "/i2", arguments: interval, vary: varyWindow, state: intervalState, aloneWaiting: true},
	store.FixedWindow:    {set: scripts.FixedWindow, letter: 'f', key: "/f2", arguments: fixed, vary: varyFixed, state: fixedState, aloneWaiting: true},
	store.SlidingWindow:  {set: scripts.SlidingWindow, letter: 's', key: "/s3", arguments: slidingWindow, vary: varySliding, state: slidingWindowState, aloneWaiting: true},
	store.SlidingCounter: {set: scripts.SlidingCounter, letter: 'k', key: "/k2", arguments: counter, vary: varyCounter, state: counterState, aloneWaiting: true},
	store.SlidingLog:     {set: scripts.SlidingLog, letter: 'g', key: "/g2", arguments: slidingLog, vary: varySliding, state: slidingLogState, alone: true, listed: true},
	store.WarmUp:         {set: scripts.WarmUp, letter: 'w', key: "/w2", arguments: warmUp, vary: varyWarmUp, state: wideWords("AtuB.C", "AtufBD.C"), alone: true, wide: &wideWarmUp},
	store.Concurrency:    {set: scripts.Concurrency, letter: 'c', key: "/c3", arguments: concurrency, vary: varyConcurrency, state: held, listed: true, leases: true},
	store.Ban:            {set: scripts.Ban, letter: 'n', key: "/n", arguments: ban, vary: varyBan, state: banState, alone: true, counts: true},
}

var (
	wideBucket = algorithm{set: scripts.WideBucket, letter: 'd', arguments: bucketInUnits, vary: varyBucketInUnits}
	wideWarmUp = algorithm{set: scripts.WideWarmUp, letter: 'v', arguments: warmUpInUnits, vary: varyWarmUp, alone: true}
)

// algorithmOf returns how l is encoded.
func algorithmOf(l *store.Limit) *algorithm {
	a := &algorithms[l.Algorithm()]
	if a.wide != nil && l.Engine(engine.Access{}).Terms().Scale.Wide {
		return a.wide
	}
	return a
}

// Fixed windows and interval buckets. Their last arguments are windows.

func fixed(r *record) []any {
	period := strconv.FormatInt(r.terms.Period, 10)
	return []any{period + ",0", "1", "", text(r.spec.Units), text(r.terms.Numbers.Unit), "", roomFor(r, 1), period, "", ""}
}

// sorts are the windows whose states may be one integer, by its first digit
// (fixedwindow.lua).
var sorts = func() (units [10]int64) {
	for i, w := range []store.Window{store.Hourly, store.Daily, store.Weekly, store.Monthly,
		store.Every(time.Minute), store.Every(time.Hour), store.Every(24 * time.Hour)} {
		l, err := store.NewLimit(store.Spec{Name: "l", Algorithm: store.FixedWindow, Units: 1, Window: w})
		if err != nil {
			panic(err) // these are right
		}
		units[i+1] = l.Engine(engine.Access{}).Terms().Numbers.Unit
	}
	return units
}()

// headOf returns the beginning of one-integer states of the window at start.
func headOf(unit, start int64) string {
	sort := slices.Index(sorts[1:], unit) + 1
	switch {
	case sort == 0 || unit == 0:
		return ""
	case start < 0:
		return strconv.Itoa(sort)
	}
	return fmt.Sprintf("%d%08d", sort, start/60_000_000)
}

// roomFor returns how much may be in a window, in ten digits, for a charge to fit.
func roomFor(r *record, cost int64) string {
	most := min(r.spec.Units, 9_999_999_999) - cost
	if cost == 0 || most < 0 {
		return ""
	}
	return fmt.Sprintf("%010d", most)
}

func varyFixed(r *record, args []any, c *store.Charge, t *timeArgs) {
	varyWindow(r, args, c, t)
	if r.spec.Window != (store.Window{}) {
		args[5] = r.around(t.wall).head
	}
	if c != nil && c.Cost != 1 {
		args[6] = roomFor(r, c.Cost)
	}
}

var fixedWords = words("ABu.Ct")

func fixedState(found string, s *engine.State) bool {
	if len(found) != 19 || strings.Contains(found, ":") {
		return fixedWords(found, s)
	}
	n, err := strconv.ParseInt(found, 10, 64)
	if err != nil || found[0] < '1' {
		return false
	}
	const most = 10_000_000_000
	s.A, s.B = n/most%100_000_000*60_000_000, n%most
	s.Numbers.Unit = sorts[found[0]-'0']
	return s.Numbers.Unit != 0
}

func interval(r *record) []any {
	period := strconv.FormatInt(r.terms.Period, 10)
	return []any{period + ",0", "1", "", text(r.spec.Units), text(r.terms.Numbers.Unit), text(r.spec.Burst), period, "", ""}
}

func varyWindow(r *record, args []any, c *store.Charge, t *timeArgs) {
	if r.spec.Window != (store.Window{}) {
		limit, bounds := r.window(t)
		args[0] = limit
		copy(args[len(args)-len(bounds):], bounds[:])
	}
	if c != nil {
		varyCostAndWait(r, args[1:], c)
	}
}

// Sliding windows and logs.

func slidingWindow(r *record) []any {
	n, scale := r.terms.Numbers, r.terms.Scale
	return append(sliding(r), text(n.Token), text(scale.PerTick), text(scale.Tick()), text(r.spec.Buckets))
}

func slidingLog(r *record) []any { return append(sliding(r), text(r.terms.Numbers.Token)) }

func sliding(r *record) []any {
	n := r.terms.Numbers
	return []any{text(r.spec.Units), fmt.Sprintf("%s:%d", brief(n.Token), n.Unit), "1", "0"}
}

func varySliding(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil {
		varyCostAndWait(r, args[2:], c)
	}
}

func varyCostAndWait(r *record, args []any, c *store.Charge) {
	if c.Cost != 1 {
		args[0] = text(c.Cost)
	}
	if c.MaxWait > 0 {
		args[1] = maxWait(c, r.terms.Patience)
	}
}

func counter(r *record) []any {
	return []any{"1", "", text(r.spec.Units), text(r.terms.Period)}
}

func varyCounter(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil {
		varyCostAndWait(r, args, c)
	}
}

var counterWords = words("ABCDu")

// counterState decodes one view, and what those of several versions have besides: units and
// last charge, and all words of the others.
func counterState(found string, s *engine.State) bool {
	plain := found
	for at, n := 0, 0; at < len(found); at++ {
		if found[at] == ':' {
			if n++; n == 5 {
				plain = found[:at]
				break
			}
		}
	}
	if !counterWords(plain, s) {
		return false
	}
	if plain == found {
		return s.B|s.C|s.D != 0
	}
	var numbers []int64
	for word := range strings.SplitSeq(found[len(plain)+1:], ":") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return false
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < 2 {
		return false
	}
	s.E, s.Log = numbers[0], []engine.Entry{{At: numbers[1]}}
	for w := numbers[2:]; len(w) >= 7; w = w[7:] {
		s.Log = append(s.Log, engine.Entry{At: w[0], Units: w[1]}, engine.Entry{At: w[2], Units: w[3]}, engine.Entry{At: w[4], Units: w[5]}, engine.Entry{At: w[6]})
	}
	return true
}

// brief formats a number in as few characters as possible, for readers that understand
// 6e7: it is part of each entry of a log.
func brief(n int64) string {
	s := strconv.FormatInt(n, 10)
	digits := strings.TrimRight(s, "0")
	if zeros := len(s) - len(digits); zeros > 2 {
		return digits + "e" + strconv.Itoa(zeros)
	}
	return s
}

func unbrief(text string) (int64, error) {
	digits, zeros, some := strings.Cut(text, "e")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !some {
		return n, err
	}
	e, err := strconv.ParseUint(zeros, 10, 4)
	for range e {
		n *= 10
	}
	return n, err
}

// intervalState decodes one view, and what some states have beside it, which is the Log.
func intervalState(found string, s *engine.State) bool {
	head, more := found, ""
	for at, n := 0, 0; at < len(found); at++ {
		if found[at] == ':' {
			if n++; n == 6 {
				head, more = found[:at], found[at+1:]
				break
			}
		}
	}
	if !intervalWords(head, s) {
		return false
	}
	for more != "" {
		var at, units string
		at, more, _ = strings.Cut(more, ":")
		units, more, _ = strings.Cut(more, ":")
		a, err := strconv.ParseInt(at, 10, 64)
		n, err2 := strconv.ParseInt(units, 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		s.Log = append(s.Log, engine.Entry{At: a, Units: n})
	}
	return true
}

var intervalWords = words("AtuB.CE")

// versions decodes token:unit:at of each version, which are separated as well.
func versions(found string) (*engine.Rest, bool) {
	w := strings.FieldsFunc(found, func(c rune) bool { return c == ':' || c == ';' })
	rest := &engine.Rest{Versions: make([]engine.Version, len(w)/3)}
	for i := range rest.Versions {
		token, err := unbrief(w[3*i])
		unit, err2 := strconv.ParseInt(w[3*i+1], 10, 64)
		at, err3 := strconv.ParseInt(w[3*i+2], 10, 64)
		if err != nil || err2 != nil || err3 != nil || token <= 0 {
			return nil, false
		}
		rest.Versions[i] = engine.Version{Numbers: engine.Numbers{Token: token, Unit: unit}, At: at}
	}
	return rest, len(w)%3 == 0 && len(rest.Versions) > 1 && len(rest.Versions) <= 4
}

// slidingWindowState decodes the versions, if there are several, the numbers, the newest
// entry, and the others, oldest first.
func slidingWindowState(found string, s *engine.State) bool {
	if several, rest, ok := strings.Cut(strings.TrimPrefix(found, "+"), "+"); ok {
		if s.Rest, ok = versions(several); !ok {
			return false
		}
		found = rest
	}
	head, older, ok := strings.Cut(found, ";")
	if !ok || !slidingWindowWords(head, s) || s.Numbers.Token <= 0 || engine.ScaleOf(s.Numbers.Unit>>10).PerTick <= 0 {
		return false
	}
	at := s.A - s.D
	s.B, s.D = s.C-s.B, 0
	s.Log = make([]engine.Entry, 0, strings.Count(older, ";"))
	for older != "" {
		var entry string
		entry, older, _ = strings.Cut(older, ";")
		units, gap, _ := strings.Cut(entry, ":")
		n, err := strconv.ParseInt(units, 10, 64)
		after, err2 := strconv.ParseInt(gap, 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		s.Log = append(s.Log, engine.Entry{At: at, Units: n})
		at += after
	}
	return s.C > 0
}

var slidingWindowWords = words("tuEACBD") // B and D: what is older, and by how much

// slidingLogState decodes the newest entry, the sum, and the entry whose leaving makes
// room; or, where several versions count, those and all entries.
func slidingLogState(found string, s *engine.State) bool {
	head, older, all := strings.Cut(found, ";")
	colons := strings.Count(head, ":")
	switch {
	case colons > 7:
		at := 0
		for range 7 {
			at += strings.IndexByte(head[at:], ':') + 1
		}
		var ok bool
		if s.Rest, ok = versions(head[at:]); !ok {
			return false
		}
		head = head[:at-1]
	case colons == 7:
		at := strings.LastIndexByte(head, ':')
		n, err := strconv.ParseInt(head[at+1:], 10, 64)
		if err != nil {
			return false
		}
		s.Log = []engine.Entry{{At: n, Units: math.MaxInt64 / 2}}
		head = head[:at]
	}
	if !slidingLogWords(head, s) {
		return false
	}
	for all && older != "" {
		var entry string
		entry, older, _ = strings.Cut(older, ";")
		at, units, _ := strings.Cut(entry, ":")
		t, err := strconv.ParseInt(at, 10, 64)
		n, err2 := strconv.ParseInt(units, 10, 64)
		if err != nil || err2 != nil {
			return false
		}
		s.Log = append(s.Log, engine.Entry{At: t, Units: n})
	}
	return s.C > 0
}

var slidingLogWords = words("ABC-tu.E")

// Warm-up.

func varyWarmUp(r *record, args []any, c *store.Charge, _ *timeArgs) {
	if c != nil {
		varyCostAndWait(r, args[1:], c)
	}
}

func warmUp(r *record) []any {
	t := &r.terms
	return []any{
		fmt.Sprintf("%d,%d", t.Largest, t.Longest), "1", "0",
		text(t.Token), text(t.Scale.PerTick), text(t.Scale.Tick()), text(t.Numbers.Unit), text(t.Warm),
	}
}

func warmUpInUnits(r *record) []any {
	t := &r.terms
	return []any{
		fmt.Sprintf("%d,%d,%d,%d,%d,%d", t.Largest, t.Longest, t.Token, t.Scale.PerTick, t.Numbers.Unit, t.Warm), "1", "0",
	}
}

// Concurrency.

func concurrency(r *record) []any { return []any{"1", text(r.spec.Units), "", ""} }

func varyConcurrency(r *record, args []any, c *store.Charge, t *timeArgs) {
	lasts := t.leaseArgs
	if lasts == nil {
		lasts = leaseArgsOf(t.lease)
	}
	args[2], args[3] = lasts[0], lasts[1]
	if c != nil && c.Cost != 1 {
		args[0] = text(c.Cost)
	}
}

// leaseArgsOf returns how long leases of so many microseconds last, and the lifetime of their
// set in milliseconds.
func leaseArgsOf(us int64) *[2]any { return &[2]any{text(us), text(2 * (us/1000 + 1))} }

func held(found string, s *engine.State) bool {
	n, err := strconv.ParseInt(found, 10, 64)
	s.A = n
	return err == nil && n > 0
}

// Bans.

func ban(r *record) []any {
	return []any{fmt.Sprintf("%d,%d,%d", r.spec.Units, r.terms.Period, r.spec.Ban.Microseconds()), "1", ""}
}

func varyBan(r *record, args []any, c *store.Charge, t *timeArgs) {
	if c == nil {
		return
	}
	if c.Cost != 1 {
		args[1] = text(c.Cost)
	}
	args[2] = t.counted
}

func banState(found string, s *engine.State) bool {
	words := strings.Split(found, ":")
	if len(words) < 3 {
		return false
	}
	numbers := make([]int64, 0, len(words))
	for i, word := range words {
		if i == 2 {
			period, _, several := strings.Cut(word, ",")
			if several {
				rest := &engine.Rest{}
				for w := range slices.Chunk(strings.Split(word, ","), 2) {
					p, err := strconv.ParseInt(w[0], 10, 64)
					at, err2 := strconv.ParseInt(w[len(w)-1], 10, 64)
					if err != nil || err2 != nil {
						return false
					}
					rest.Versions = append(rest.Versions, engine.Version{Numbers: engine.Numbers{Token: p}, At: at})
				}
				s.Rest = rest
			}
			word = period
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return false
		}
		numbers = append(numbers, n)
	}
	s.A, s.B, s.Numbers.Token = numbers[0], numbers[1], numbers[2]
	for _, at := range numbers[3:] {
		s.Log = append(s.Log, engine.Entry{At: at, Units: 1})
	}
	return s.Numbers.Token > 0
}
