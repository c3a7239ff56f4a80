package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Suggest works out numbers for the rates of a limiter: for each, the rate and the burst that would
// have let 99 %, 99.9 % and 99.99 % of its keys through untouched. The limiter's routes, keys and
// costs say what counts together; the numbers that its rates have now make no difference. It
// suggests for rates by TokenBucket. The others are in Suggestions.NotJudged, with those that the
// log doesn't say enough for.
//
// How much burst each key needs at each rate is worked out from all of its requests. A log with
// whole seconds is read in two scenarios, and the one that needs more counts.
//
// The errors are those of Run, or that there are more keys than WithMaxKeys allows.
func Suggest(newLimiter func() (*stint.Limiter, error), log Log, opts ...SuggestOption) (*Suggestions, error) {
	c := newConfig()
	for _, o := range opts {
		o.ofSuggest(c)
	}
	r, lim, first, err := c.begin("Suggest", newLimiter, log)
	if err != nil {
		return nil, err
	}
	var all []*needs
	for range scenarioNames(r.says) {
		d := newNeeds(lim, c, r.says, first.at)
		all = append(all, d)
		r.consumers = append(r.consumers, d)
	}
	r.builder = newBuilder(r.says, all[0].judge)
	if err := errors.Join(r.run(first), checkFieldNames(log), r.order.checkUnit(r.says.assumedSeconds)); err != nil {
		return nil, err
	}
	return r.suggestions(all), nil
}

// Suggestions is the result of Suggest. Its keys contain text that clients wrote, unescaped:
// escape a key before you show it.
type Suggestions struct {
	Log LogReport `json:"log"`
	// NotJudged has the limits for which no numbers can be suggested. LeftOut is the number of
	// requests that no limit counts, by reason.
	NotJudged []NotJudged      `json:"not_judged,omitempty"`
	LeftOut   map[string]int64 `json:"left_out,omitempty"`
	// Headroom is that of WithHeadroom, and Horizon that of WithHorizon in seconds.
	Headroom float64 `json:"headroom"`
	Horizon  float64 `json:"horizon"`
	// Limits has the limiter's rates, its own before those of routes.
	Limits []LimitSuggestion `json:"limits"`
}

// LimitSuggestion has the suggested numbers for a limit.
type LimitSuggestion struct {
	Limit string `json:"limit"`
	// Route is the pattern of the first route that has the limit, or "" for the limiter's own
	// limits.
	Route    string `json:"route"`
	Requests int64  `json:"requests"`
	Keys     int64  `json:"keys"`
	// Shares has the numbers for each share of keys, the smallest first.
	Shares []ShareSuggestion `json:"shares"`
	// Busiest has the keys with the most requests, if there are too few keys to suggest a policy for a share of them.
	Busiest []BusyKey `json:"busiest,omitempty"`
}

// BusyKey has the numbers with which a key has no request denied, without headroom.
type BusyKey struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	// Rate is a rate and a burst, chosen as ShareSuggestion.Least is. It is zero if the log is too short for one.
	Rate Rate `json:"rate,omitzero"`
	// Hour and Day are the most units in an hour and in a day of UTC. One is 0 if the log covers less than nine
	// tenths of such a time.
	Hour int64 `json:"hour,omitempty"`
	Day  int64 `json:"day,omitempty"`
}

// ShareSuggestion has the numbers with which a share of a limit's keys has no request denied.
type ShareSuggestion struct {
	// Share is 0.99, 0.999 or 0.9999.
	Share float64 `json:"share"`
	// Unknown says why the log doesn't show it, or is "". Otherwise nothing below is set.
	Unknown string `json:"unknown,omitempty"`
	// Scenario is the one that needs most, and Least the numbers that suffice in it: with a
	// burst of one less, more keys would be touched. Of the Curve it is the point that WithHorizon
	// describes.
	Scenario string `json:"scenario,omitempty"`
	Least    Rate   `json:"least,omitzero"`
	// Suggested is Least with headroom. Touched is how many keys it would have denied something,
	// and Top those of them that need the largest burst at its rate.
	Suggested Rate      `json:"suggested,omitzero"`
	Touched   int64     `json:"keys_denied"`
	Top       []KeyNeed `json:"top,omitempty"`
	// Curve has the least burst at each rate that was considered, the slowest first. Least may have the
	// same rate by a shorter unit.
	Curve []Rate `json:"curve,omitempty"`
}

// Rate has the numbers of a rate: Units per Seconds, and a burst.
type Rate struct {
	Units   int64 `json:"units"`
	Seconds int64 `json:"seconds"`
	Burst   int64 `json:"burst"`
}

// Per returns the period of the rate.
func (r Rate) Per() time.Duration { return time.Duration(r.Seconds) * time.Second }

// perSecond returns the rate, of which burst is no part.
func (r Rate) perSecond() float64 { return float64(r.Units) / float64(r.Seconds) }

// KeyNeed is the burst that a key needs.
type KeyNeed struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
	Burst    int64  `json:"burst"`
}

// touchedOneIn are the shares of keys: one key in so many may be touched. A share is only suggested if the log
// has ten keys beyond it: otherwise the numbers would be those of a few extreme keys, which differ from
// day to day.
var touchedOneIn = [...]int64{100, 1000, 10_000}

// minSpanFactor is how many times as long as the horizon a log must be.
const minSpanFactor = 10

// needs has the bursts that the keys of a limiter's rates need in one scenario.
type needs struct {
	judge   *judge
	limits  []*limitNeeds
	byLimit map[*store.Limit]*limitNeeds
	leftOut map[string]int64
	keys    int64
	maxKeys int64
}

// limitNeeds has those of one limit.
type limitNeeds struct {
	name, route string
	requests    int64
	keys        map[string]*keyNeeds
}

// keyNeeds has those of one key.
type keyNeeds struct {
	curve
	hour, day busiest
}

// busiest is the most units within one of the times of a period, which begin at multiples of it.
type busiest struct{ number, units, most int64 }

func (b *busiest) add(us int64, period time.Duration, units int64) {
	if number := us / period.Microseconds(); number != b.number {
		b.number, b.units = number, 0
	}
	b.units += units
	b.most = max(b.most, b.units)
}

const day = 24 * time.Hour

func newNeeds(l *stint.Limiter, c *config, says Says, start time.Time) *needs {
	d := &needs{judge: newJudge(l, says, c, c.predicates, start.Truncate(time.Second)),
		byLimit: map[*store.Limit]*limitNeeds{}, leftOut: map[string]int64{}, maxKeys: c.keys}
	for _, p := range d.judge.plans.All() {
		for _, e := range p.Declared {
			l := e.StoreLimit
			switch why := whyUnsuited(e); {
			case d.byLimit[l] != nil:
			case why != "":
				d.judge.noteNotJudged(e.Name(), p.Pattern, why)
			default:
				d.byLimit[l] = &limitNeeds{name: e.Name(), route: p.Pattern, keys: map[string]*keyNeeds{}}
				d.limits = append(d.limits, d.byLimit[l])
			}
		}
	}
	return d
}

// whyUnsuited returns why nothing can be suggested for a limit, or "".
func whyUnsuited(e *read.Entry) string {
	switch s := e.StoreLimit.Spec(); {
	case e.Kind != limit.Charged || s.Algorithm != store.TokenBucket || s.Debt || s.Queue > 0:
		return "numbers are only suggested for rates by TokenBucket without debt"
	case e.Settler != nil:
		return "its cost is only known when a request has ended"
	}
	return ""
}

// decide implements consumer.
func (d *needs) decide(at time.Time, logged *Request, r *http.Request, why string) error {
	if r == nil {
		d.leftOut[why]++
		return nil
	}
	v, charged := d.judge.charges(logged, r)
	if !charged {
		d.leftOut[cmp.Or(v.unjudged, v.reason, "no limit applies")]++
		return nil
	}
	us, counted := at.UnixMicro(), false // the resolution of decisions
	for i := range d.judge.call.Charges {
		ch := &d.judge.call.Charges[i]
		need := d.byLimit[ch.Limit]
		if need == nil || ch.Cost <= 0 {
			continue
		}
		counted = true
		k := need.keys[ch.Key]
		if k == nil {
			if d.keys++; d.keys > d.maxKeys {
				return fmt.Errorf("WithMaxKeys(%[1]d): the log has more than %[1]d keys: write a larger number, or choose a key with fewer values", d.maxKeys)
			}
			k = new(keyNeeds)
			need.keys[ch.Key] = k
		}
		need.requests++
		k.requests++
		k.add(us, ch.Cost)
		k.hour.add(us, time.Hour, ch.Cost)
		k.day.add(us, day, ch.Cost)
	}
	if !counted {
		d.leftOut["only limits apply for which suggest has no numbers"]++
	}
	return nil
}

// suggestions returns the suggestions that follow from a replay.
func (r *replay) suggestions(all []*needs) *Suggestions {
	out := &Suggestions{Log: r.logReport(), NotJudged: all[0].judge.notes, LeftOut: all[0].leftOut, Headroom: r.headroom,
		Horizon: r.horizon.Seconds()}
	names := scenarioNames(r.says)
	span := out.Log.To.Sub(out.Log.From)
	for i, d := range all[0].limits {
		l := LimitSuggestion{Limit: d.name, Route: d.route, Requests: d.requests, Keys: int64(len(d.keys))}
		s := sizing{config: r.config, span: span, keys: make([]keyCount, 0, len(d.keys))}
		for key, c := range d.keys {
			s.keys = append(s.keys, keyCount{key, c.requests, c.hour.most, c.day.most})
		}
		slices.SortFunc(s.keys, func(a, b keyCount) int { return cmp.Compare(a.key, b.key) })
		for n := range all {
			es := make([]envelope, len(s.keys))
			for k := range s.keys {
				es[k] = all[n].limits[i].keys[s.keys[k].key].envelope()
			}
			all[n].limits[i].keys = nil // an envelope needs less room
			s.envelopes = append(s.envelopes, es)
		}
		s.names = names
		if l.Shares = s.shares(); int64(len(s.keys)) < minKeys && s.longEnough() {
			l.Busiest = s.busiest()
		}
		out.Limits = append(out.Limits, l)
	}
	return out
}

// sizing works out the numbers for one limit.
type sizing struct {
	*config
	span      time.Duration
	keys      []keyCount
	names     []string     // of scenarios
	envelopes [][]envelope // of each scenario, each key's
}

type keyCount struct {
	key                 string
	requests, hour, day int64
}

// minKeys is how many keys the smallest share needs.
const minKeys = 1000

func (s *sizing) longEnough() bool { return s.span >= minSpanFactor*s.horizon }

// covers reports whether a bucket is seen refilling ten times in the log.
func (s *sizing) covers(r Rate, burst int64) bool {
	return float64(burst)/r.perSecond() <= s.span.Seconds()/minSpanFactor
}

// busiest returns what the keys with the most requests need.
func (s *sizing) busiest() (all []BusyKey) {
	order := make([]int, len(s.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.keys[b].requests, s.keys[a].requests) })
	for _, i := range order[:min(int64(len(order)), s.top)] {
		k := &s.keys[i]
		one := BusyKey{Key: displayKey(k.key, s.hash), Requests: k.requests, Rate: s.rateOf(i)}
		if s.span >= time.Hour*9/10 {
			one.Hour = k.hour
		}
		if s.span >= day*9/10 {
			one.Day = k.day
		}
		all = append(all, one)
	}
	return all
}

// rateOf returns the rate and burst that a key needs, or zero if the log is too short for any.
func (s *sizing) rateOf(key int) Rate {
	var curve []Rate
	for _, r := range candidates {
		for _, es := range s.envelopes {
			r.Burst = max(r.Burst, es[key].burst(r))
		}
		if n := len(curve); s.covers(r, r.Burst) && (n == 0 || r.Burst < curve[n-1].Burst) {
			curve = append(curve, r)
		}
	}
	if len(curve) == 0 {
		return Rate{}
	}
	return inShortestUnit(curve[pickPoint(curve, s.horizon)])
}

// shares returns the numbers for each share.
func (s *sizing) shares() (out []ShareSuggestion) {
	n := int64(len(s.keys))
	known := 0
	for _, oneIn := range touchedOneIn {
		o := ShareSuggestion{Share: float64(oneIn-1) / float64(oneIn)}
		switch {
		case !s.longEnough():
			o.Unknown = fmt.Sprintf("the log covers %v, and must cover ten times the horizon of %v: %v",
				s.span.Round(time.Millisecond), s.horizon, minSpanFactor*s.horizon)
		case n < 10*oneIn:
			o.Unknown = fmt.Sprintf("%s needs a log with %d keys, and this one has %d",
				strconv.FormatFloat(100-100/float64(oneIn), 'f', -1, 64)+"%", 10*oneIn, n)
		default:
			known++
		}
		out = append(out, o)
	}
	if known == 0 {
		return out
	}
	scenarioOf := make([][]string, known) // the scenario of each point
	last := s.bursts(candidates[len(candidates)-1], known)
	for _, r := range candidates {
		if !s.covers(r, last[0].burst) { // nor any larger
			continue
		}
		quantiles, unchanged := s.bursts(r, known), true
		for i := range known {
			o := &out[i]
			r.Burst = quantiles[i].burst
			unchanged = unchanged && r.Burst == last[i].burst
			if n := len(o.Curve); !s.covers(r, r.Burst) || n > 0 && o.Curve[n-1].Burst == last[i].burst {
				continue // at a higher rate it needs no less
			}
			o.Curve = append(o.Curve, r)
			scenarioOf[i] = append(scenarioOf[i], s.names[quantiles[i].scenario])
		}
		if unchanged && s.covers(r, r.Burst) {
			break
		}
	}
	for i := range known {
		o := &out[i]
		point := pickPoint(o.Curve, s.horizon)
		o.Least, o.Scenario = inShortestUnit(o.Curve[point]), scenarioOf[i][point]
		o.Suggested = inShortestUnit(withHeadroom(o.Curve[point], s.headroom))
		o.Touched, o.Top = s.touchedKeys(o.Suggested)
	}
	return out
}

// pickPoint returns the index of the point of a curve that is suggested, among those with round rates, or
// among all if none is round. It compares how much a key gets through within the horizon at each. Those
// that let at most a quarter more through than the least one are as good; of these, it picks one with the
// shortest unit and, among several, the one that lets least through. (By the least alone, a rate per day
// with a large burst would win over one per minute by next to nothing.)
func pickPoint(curve []Rate, horizon time.Duration) (point int) {
	admitted := func(r Rate) float64 { return float64(r.Burst) + r.perSecond()*horizon.Seconds() }
	var round []int
	for i, r := range curve {
		if isRound(inShortestUnit(r)) {
			round = append(round, i)
		}
	}
	if len(round) == 0 {
		for i := range curve {
			round = append(round, i)
		}
	}
	least := func(a, b int) int { return cmp.Compare(admitted(curve[a]), admitted(curve[b])) }
	most := 1.25 * admitted(curve[slices.MinFunc(round, least)])
	round = slices.DeleteFunc(round, func(i int) bool { return admitted(curve[i]) > most })
	return slices.MinFunc(round, func(a, b int) int {
		return cmp.Or(cmp.Compare(inShortestUnit(curve[a]).Seconds, inShortestUnit(curve[b]).Seconds), least(a, b))
	})
}

// isRound reports whether a rate is one that people usually write.
func isRound(r Rate) bool {
	n := r.Units
	for n >= 100 && n%10 == 0 {
		n /= 10
	}
	return r.Seconds <= 3600 && (n <= 6 || slices.Contains([]int64{8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80}, n))
}

// inShortestUnit returns a rate by the shortest unit in which it is an integer: 60 per minute are 1 per second.
func inShortestUnit(r Rate) Rate {
	for _, seconds := range []int64{1, 60, 3600} {
		if n := r.Units * seconds; seconds < r.Seconds && n%r.Seconds == 0 {
			return Rate{n / r.Seconds, seconds, r.Burst}
		}
	}
	return r
}

// quantile is the burst that a share of keys needs, in the scenario that needs most.
type quantile struct {
	burst    int64
	scenario int
}

// bursts returns the least bursts at a rate for the first shares.
func (s *sizing) bursts(r Rate, known int) []quantile {
	out := make([]quantile, known)
	all := make([]int64, len(s.keys))
	for n, es := range s.envelopes {
		for k, e := range es {
			all[k] = e.burst(r)
		}
		// The largest that a key may need is that of the first that must pass.
		top := largest(all, len(all)/int(touchedOneIn[0])+1)
		for i := range out {
			if b := top[len(all)/int(touchedOneIn[i])]; b > out[i].burst {
				out[i] = quantile{b, n}
			}
		}
	}
	return out
}

// largest returns the n largest numbers, the largest first, by quickselect. It reorders all.
func largest(all []int64, n int) []int64 {
	from, to := 0, len(all) // the n-th is in all[from:to]
	for to-from > 1 {
		pivot := all[from+(to-from)/2]
		i, j := from, to-1
		for i <= j {
			for all[i] > pivot {
				i++
			}
			for all[j] < pivot {
				j--
			}
			if i <= j {
				all[i], all[j] = all[j], all[i]
				i++
				j--
			}
		}
		switch { // all[from:j+1] >= pivot >= all[i:to], and what is between is the pivot
		case n-1 <= j:
			to = j + 1
		case n-1 >= i:
			from = i
		default:
			from = to
		}
	}
	top := all[:n]
	slices.SortFunc(top, func(a, b int64) int { return cmp.Compare(b, a) })
	return top
}

// touchedKeys returns how many keys a limit would deny something, and those that need most.
func (s *sizing) touchedKeys(r Rate) (n int64, top []KeyNeed) {
	for k, key := range s.keys {
		need := int64(0)
		for _, es := range s.envelopes {
			need = max(need, es[k].burst(r))
		}
		if need > r.Burst {
			n++
			top = append(top, KeyNeed{key.key, key.requests, need})
		}
	}
	slices.SortStableFunc(top, func(a, b KeyNeed) int { return cmp.Compare(b.Burst, a.Burst) })
	top = slices.Clone(top[:min(int64(len(top)), s.top)])
	for i := range top {
		top[i].Key = displayKey(top[i].Key, s.hash)
	}
	return n, top
}

// withHeadroom returns a rate with headroom.
func withHeadroom(r Rate, factor float64) Rate {
	more := func(n int64) int64 { return int64(math.Ceil(float64(n)*factor - 1e-9)) }
	return Rate{nextExact(more(r.Units), r.Seconds), r.Seconds, more(r.Burst)}
}

// finestParts is how many parts a microsecond has at most in a limit that counts in microseconds: see
// store's fit. The times of limits with other rates are rounded down to ten microseconds or more,
// so that their keys may need another burst than the log's times say.
const finestParts = 14

// nextExact returns the next number of units in so many seconds that a limit counts in microseconds.
func nextExact(n, seconds int64) int64 {
	period := seconds * 1e6
	for m := n; m <= finestParts*period; m++ {
		if m/gcd(m, period) <= finestParts {
			return m
		}
	}
	return n // so many that a limit counts them in parts of any size
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// candidates are the rates that a suggestion may have, from 10 a day to a million a second, the
// slowest first: with two digits, at most a tenth apart.
var candidates = func() (all []Rate) {
	for _, unit := range []struct{ seconds, below int64 }{{86400, 240}, {3600, 600}, {60, 600}, {1, 1_000_000}} {
		for times := int64(1); 10*times < unit.below; times *= 10 {
			for digits := int64(10); digits < 100 && digits*times < unit.below; digits++ {
				if n := digits * times; nextExact(n, unit.seconds) == n {
					all = append(all, Rate{Units: n, Seconds: unit.seconds})
				}
			}
		}
	}
	return append(all, Rate{Units: 1_000_000, Seconds: 1})
}()
