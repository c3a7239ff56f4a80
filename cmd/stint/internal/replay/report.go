package replay

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/stint-go/stint/store"
)

// Report is the result of Run. Keys and broken lines contain text that clients wrote,
// unescaped: escape it before you show it.
type Report struct {
	Log LogReport `json:"log"`
	// NotJudged has the limits for which the log lacks data, and Against the same for the
	// limiter of WithAgainst.
	NotJudged []NotJudged `json:"not_judged,omitempty"`
	Against   []NotJudged `json:"against_not_judged,omitempty"`
	// Scenarios has one result, or two for a log with whole seconds.
	Scenarios []Scenario `json:"scenarios"`
}

// Strictest returns the scenario with the most denials. Use it in an automatic check.
func (r *Report) Strictest() *Scenario {
	strictest := &r.Scenarios[0]
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; s.Denied > strictest.Denied {
			strictest = s
		}
	}
	return strictest
}

// LogReport describes the log.
type LogReport struct {
	// Format is the name of its format, or of those of several logs: "combined in syslog".
	Format   string `json:"format,omitempty"`
	Requests int64  `json:"requests"`
	// From is the time when the first request arrived, and To the time when the last ended.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Resolution is that of its times, in seconds.
	Resolution float64 `json:"resolution"`
	// Durations: the log has the durations of requests.
	Durations bool   `json:"durations"`
	Broken    Broken `json:"broken"`
	// Jumps are where a clock was set back for good, and CutOff is where files have ended early, such as a
	// compressed one that is incomplete: an unknown number of requests is missing.
	Jumps  []Jump   `json:"jumps,omitempty"`
	CutOff []string `json:"cut_off,omitempty"`
	// Sorted is the number of requests that were logged after a request that ended later, and
	// Disorder the greatest such difference in seconds. Moved is the number of requests that
	// could not be sorted: see WithWindow.
	Sorted   int64   `json:"sorted,omitempty"`
	Disorder float64 `json:"disorder,omitempty"`
	Moved    int64   `json:"moved,omitempty"`
	// Overflow is the number of charges on keys that found no room and shared their counts with
	// others: see WithMaxKeys.
	Overflow uint64 `json:"overflow,omitempty"`
}

// Unread returns the number of lines that may have been requests and could not be read.
func (l *LogReport) Unread() int64 { return l.Broken.Lines - l.Broken.NotRequests }

// NotJudged is a limit that isn't judged, or a limit function with Limit "".
type NotJudged struct {
	Limit string `json:"limit"`
	Route string `json:"route,omitempty"`
	Why   string `json:"why"`
}

// Count counts requests.
type Count struct {
	Requests int64 `json:"requests"`
	Denied   int64 `json:"denied"`
	Waited   int64 `json:"waited,omitempty"`
}

// Scenario holds what would have happened under one reading of the log's times.
type Scenario struct {
	// Name is AsLogged, AtOnce or Evenly.
	Name string `json:"name"`
	// Requests is the number of requests that were judged.
	Count
	// Exempt is the number of judged requests to which no limit applies.
	Exempt int64 `json:"exempt,omitempty"`
	// Unjudged is the number of requests that weren't judged, by reason.
	Unjudged map[string]int64 `json:"unjudged,omitempty"`
	// LongestWait is the longest wait for a turn, in seconds.
	LongestWait float64 `json:"longest_wait,omitempty"`
	// FailedAnyway is the number of denied requests whose logged status is 5xx.
	FailedAnyway int64 `json:"failed_anyway,omitempty"`
	// Limits has the limits that were charged by at least one request, in order of their first
	// charge. Reasons counts denials that were not by a limit.
	Limits  []LimitReport    `json:"limits"`
	Reasons map[string]int64 `json:"reasons,omitempty"`
	// Routes counts by the pattern of the route, "" for the limiter's own limits.
	Routes map[string]*Count `json:"routes"`
	// Statuses counts by the class of the logged status: "2xx"; "" without one.
	Statuses map[string]*Count `json:"statuses"`
	// Top has the keys with the most denials.
	Top []KeyReport `json:"top,omitempty"`
	// Timeline has the requests and denials over time.
	Timeline Timeline `json:"timeline"`
	// Flips compares with the limiter of WithAgainst; or nil.
	Flips *Flips `json:"flips,omitempty"`
}

// NotJudged returns the number of requests that weren't judged.
func (s *Scenario) NotJudged() (n int64) {
	for _, requests := range s.Unjudged {
		n += requests
	}
	return n
}

// DeniedShare returns the share of the judged requests that are denied, from 0 to 1.
func (s *Scenario) DeniedShare() float64 {
	if s.Requests == 0 {
		return 0
	}
	return float64(s.Denied) / float64(s.Requests)
}

// LimitReport is the part of one limit.
type LimitReport struct {
	Limit string `json:"limit"`
	// Count has the requests that were charged to the limit, and those that it denied or made
	// wait, alone or with other limits.
	Count
	// DryRun: the limit only reports. Its denials have no effect.
	DryRun bool `json:"dry_run,omitempty"`
	// Keys is the number of keys. If there are too many to keep, a key that returns after its
	// counts have expired counts again.
	Keys int64 `json:"keys"`
	// KeysDenied is the number of keys with a denied request.
	KeysDenied int64 `json:"keys_denied"`
	// PeakUse is the highest usage in percent: 100 if nothing was left.
	PeakUse int `json:"peak_use"`
	// Use is the number of keys by peak usage: below 10 %, 10 to 19 %, and so on to 90 to 99 %;
	// then keys that had nothing left, and keys that were denied.
	Use [12]int64 `json:"use"`
}

// KeyReport is a key that a limit would have denied.
type KeyReport struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	Count
	// First and Last are the times of the first and the last denial. Held is the total time, in
	// seconds, from each denial until the limit would have admitted the key.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Held  float64   `json:"held"`
}

// Timeline is requests and denials over time.
type Timeline struct {
	// Start is the beginning of the first slot, and Step the length of each slot, both in seconds.
	Start time.Time `json:"start"`
	Step  float64   `json:"step"`
	// Limits names the limits of Slot.Denied, in that order. The last is "" for other
	// reasons.
	Limits []string `json:"limits"`
	Slots  []Slot   `json:"slots"`
}

// Slot is a part of a Timeline.
type Slot struct {
	Requests int64 `json:"requests"`
	// Denied counts denials by the limit that denied with the longest wait.
	Denied []int64 `json:"denied"`
}

// Flips are the requests whose outcome changes, compared with the limiter that is in force.
type Flips struct {
	// ToDenied and ToAllowed are the numbers of requests that change from allowed to denied,
	// and from denied to allowed.
	ToDenied  int64 `json:"to_denied"`
	ToAllowed int64 `json:"to_allowed"`
	// Keys has the keys with such requests, those with the most first. Others is the number of
	// further keys; beyond 100,000 keys, the number of their requests.
	Keys   []Flip `json:"keys,omitempty"`
	Others int64  `json:"others,omitempty"`
	// Unjudged is the number of requests that one of the limiters can't judge.
	Unjudged int64 `json:"unjudged,omitempty"`
}

// Flip is a key with requests whose outcome changes.
type Flip struct {
	// Limit denies them, now or before.
	Limit     string `json:"limit"`
	Key       string `json:"key"`
	ToDenied  int64  `json:"to_denied"`
	ToAllowed int64  `json:"to_allowed"`
}

// report returns the report of a run that is over.
func (r *replay) report(all []*scenario) *Report {
	out := &Report{Log: r.logReport(), NotJudged: all[0].judge.notes}
	for _, s := range all {
		out.Scenarios = append(out.Scenarios, s.report(r.config))
		out.Log.Overflow = max(out.Log.Overflow, s.judge.store.Stats().Overflow)
	}
	if old := all[0].against; old != nil {
		out.Against = old.notes
		out.Log.Overflow = max(out.Log.Overflow, old.store.Stats().Overflow)
	}
	return out
}

// logReport returns the description of the log that was read.
func (r *replay) logReport() LogReport {
	o := r.order
	out := LogReport{
		Format: r.says.Format, Requests: o.read, From: o.begin, To: o.end,
		Resolution: max(r.says.Resolution, time.Microsecond).Seconds(),
		Durations:  r.says.Took, Broken: brokenOf(r.log), Sorted: o.sorted, Disorder: o.disorder.Seconds(), Moved: o.moved,
	}
	out.Jumps, out.CutOff = faultsOf(r.log)
	if r.hash != nil {
		out.Broken.First = nil // their addresses are keys
	}
	return out
}

// report returns the counts of a scenario.
func (s *scenario) report(c *config) Scenario {
	show := func(key string) string { return displayKey(key, c.hash) }
	out := Scenario{
		Name: s.name, Count: s.count, Exempt: s.exempt, Unjudged: s.unjudged, LongestWait: s.longest.Seconds(),
		FailedAnyway: s.failed, Reasons: s.reasons, Routes: map[string]*Count{}, Statuses: s.statuses(),
		Timeline: s.timeline.report(len(s.limits)),
	}
	maps.Copy(out.Routes, s.routes)
	for _, l := range s.limits {
		l.flush(func(*keyUse) bool { return true })
		out.Limits = append(out.Limits, LimitReport{
			Limit: l.name, Count: l.count, DryRun: l.dryRun, Keys: l.keys, KeysDenied: int64(len(l.denied)) + l.dropped,
			PeakUse: min(int(l.peak), 100), Use: l.use,
		})
		out.Timeline.Limits = append(out.Timeline.Limits, l.name)
		for key, k := range l.denied {
			out.Top = append(out.Top, KeyReport{Limit: l.name, Key: key, Count: k.count,
				First: instant(k.first), Last: instant(k.last), Held: k.held.Seconds()})
		}
	}
	out.Timeline.Limits = append(out.Timeline.Limits, "")
	slices.SortFunc(out.Top, func(a, b KeyReport) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key))
	})
	out.Top = out.Top[:min(int64(len(out.Top)), c.top)]
	for i := range out.Top {
		out.Top[i].Key = show(out.Top[i].Key)
	}
	if s.against != nil {
		out.Flips = s.flips.report(c.top, show)
	}
	return out
}

// displayKey returns a key as a report shows it.
func displayKey(key string, secret []byte) string {
	if secret == nil || key == "" {
		return key
	}
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(key))
	return "#" + hex.EncodeToString(h.Sum(nil)[:6])
}

func instant(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// flipKey is a key of a limit.
type flipKey struct{ limit, key string }

// flips counts the requests whose outcome changes.
type flips struct {
	toDenied, toAllowed, unjudged, others int64
	keys                                  map[flipKey]*Flip
}

// mostFlips is how many keys are kept whose requests change.
const mostFlips = 100_000

func (f *flips) add(toDenied bool, limit, key string) {
	k := f.keys[flipKey{limit, key}]
	if k == nil {
		if len(f.keys) >= mostFlips {
			f.others++
			k = new(Flip) // of no report
		} else {
			k = &Flip{Limit: limit, Key: key}
			f.keys[flipKey{limit, key}] = k
		}
	}
	if toDenied {
		f.toDenied++
		k.ToDenied++
	} else {
		f.toAllowed++
		k.ToAllowed++
	}
}

func (f *flips) report(top int64, show func(string) string) *Flips {
	out := &Flips{ToDenied: f.toDenied, ToAllowed: f.toAllowed, Unjudged: f.unjudged}
	for _, k := range f.keys {
		out.Keys = append(out.Keys, *k)
	}
	slices.SortFunc(out.Keys, func(a, b Flip) int {
		return cmp.Or(cmp.Compare(b.ToDenied+b.ToAllowed, a.ToDenied+a.ToAllowed), cmp.Compare(a.Limit, b.Limit),
			cmp.Compare(a.Key, b.Key))
	})
	out.Others = max(int64(len(out.Keys))-top, 0) + f.others
	out.Keys = out.Keys[:min(int64(len(out.Keys)), top)]
	for i := range out.Keys {
		out.Keys[i].Key = show(out.Keys[i].Key)
	}
	return out
}

// deniedBy returns the limit and the key that deny a request, for flips.
func (j *judge) deniedBy(v *verdict) (name, key string) {
	if v.deniedBy < 0 {
		return "(" + v.reason + ")", ""
	}
	ch := &j.call.Charges[v.deniedBy]
	return ch.Limit.Name(), ch.Key
}

// capacity returns the units left of an unused limit.
func (j *judge) capacity(l *store.Limit) int64 {
	charges, results := []store.Charge{{Key: "\x00", Limit: l}}, make([]store.Result, 1) // no key has such a text
	if err := j.store.Take(context.Background(), charges, results); err != nil {
		panic(err)
	}
	return results[0].Remaining
}
