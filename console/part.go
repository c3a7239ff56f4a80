package console

import (
	"bytes"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/topkeys"
)

const (
	// parts is the number of parts of the figures, so that requests rarely wait for
	// each other.
	parts = 4
	// sketchSize is the size of a sketch: its counts are exact to a 64th of all.
	sketchSize = 64
	// batchSize is how many answers of limits are counted at once.
	batchSize = 128
	// rememberedKeys is of how many keys a part remembers the last denials.
	rememberedKeys = 128
	// placesOfKey is in how many places the denials of a key may be: as many keys may have hashes that agree.
	placesOfKey = 4
)

var seed = maphash.MakeSeed()

// part has the figures of some of a limiter's events. To count events one at a time, with
// cold caches, costs several times as much as to count many at once. So events are recorded
// first, and counted together within a second.
type part struct {
	ended atomic.Int32 // requests, since close

	mu       sync.Mutex // guards the rest
	batch    batch
	outcomes [32]uint64 // by kind of event
	inFlight int64
	waiting  int64

	decisions ring // allowed, denied
	changes   ring // of requests in flight, and waiting
	store     durations
	figures   map[string]*figures // by limit
	denied    []denialsOfKey      // of keys, by their hashes
	_         [64]byte            // no line of this one is another part's
}

// The columns of rings.
const (
	allowed = iota
	denied
)

const (
	running = iota
	waiting
)

// batch holds the events of one second that have not been counted yet.
type batch struct {
	second             uint32
	recorded           bool // an event, since countBatch
	decisions, changes [2]int32
	answers            []answer
	keys               []byte // of answers, one after the other
	took               []uint16
}

// answer is a limit's answer to a request or a raise.
type answer struct {
	limit             string
	end               int // of its key in keys
	allowed, deciding bool
	left, capacity    int64 // units, afterwards
}

// figures are a part's figures of a limit: of its answers to requests and to raises.
type figures struct {
	limit                  *limit
	allowed, denied, bound uint64
	ring                   ring
	near                   nearest
	admitted, stopped      *topkeys.Recent
}

// batchOf returns the batch of a second, with room. The caller holds p.mu.
func (p *part) batchOf(b *board, now uint32) *batch {
	t := &p.batch
	if t.second != now || len(t.answers) >= batchSize || len(t.took) >= batchSize {
		p.countBatch(b)
		t.second = now
	}
	return t
}

// record records an event. The caller holds p.mu.
func (p *part) record(b *board, e *stint.Event, now uint32) {
	t := p.batchOf(b, now)
	t.recorded = true
	if e.Kind != stint.EventSourceFailed && e.Kind != stint.EventEmptyKey || e.Err != nil { // otherwise it is no outcome
		p.outcomes[outcomeOf(e)]++
	}
	if e.EndsWait {
		t.changes[waiting]--
	}
	switch e.Kind {
	case stint.EventAdmitted:
		t.decisions[allowed]++
		t.changes[running]++
		t.addDecision(e)
	case stint.EventDenied:
		t.decisions[denied]++
		t.addDecision(e)
	case stint.EventWaiting:
		t.changes[waiting]++
	case stint.EventBlocked:
		t.decisions[denied]++
	case stint.EventEmptyKey:
		if e.Err != nil { // otherwise a dry run, which doesn't deny
			t.decisions[denied]++
		}
	case stint.EventKeyFailed, stint.EventLimitsFailed:
		if isAnswer(e) {
			t.decisions[denied]++
		}
	case stint.EventExtended: // of a request that is admitted already
		if e.Err == nil {
			t.addDecision(e)
		}
	case stint.EventDryRunDenied:
		for i := range e.Decision.Limits {
			if s := &e.Decision.Limits[i]; s.DryRun && s.Name == e.Decision.Limit {
				t.addAnswer(e, i, false)
			}
		}
	}
}

// Outcomes beside the kinds of events: a key function, or a limit function, denies a request.
const keyDenied, limitsDenied = 30, 31

func outcomeOf(e *stint.Event) int {
	switch {
	case !isAnswer(e):
		return int(e.Kind % 30)
	case e.Kind == stint.EventKeyFailed:
		return keyDenied
	}
	return limitsDenied
}

// addDecision records the limits that decided: all of them if the request passes, otherwise
// those that denied.
func (t *batch) addDecision(e *stint.Event) {
	t.took = append(t.took, uint16(bucketOf(e.StoreTook)))
	for i := range e.Decision.Limits {
		s := &e.Decision.Limits[i]
		if s.Allowed != e.Decision.Allowed || s.DryRun && !s.Allowed {
			continue
		}
		t.addAnswer(e, i, !s.Allowed && s.Name == e.Decision.Limit)
	}
}

// addAnswer records the answer of a limit.
func (t *batch) addAnswer(e *stint.Event, i int, bound bool) {
	s := &e.Decision.Limits[i]
	t.keys = append(t.keys, e.Key(i)...)
	t.answers = append(t.answers, answer{s.Name, len(t.keys), s.Allowed, bound, s.Remaining, s.Capacity})
}

// denialsOfKey are the last denials of a key.
type denialsOfKey struct {
	key  string
	n    int
	last [3]denial
}

// newest returns the time of the last denial, or 0 if there is none.
func (d *denialsOfKey) newest() time.Time {
	if d.n == 0 {
		return time.Time{}
	}
	return d.last[(d.n-1)%len(d.last)].at
}

// placesFor returns the places in which the denials of a key may be. The caller holds p.mu.
func (p *part) placesFor(key string) []denialsOfKey {
	if p.denied == nil {
		return nil
	}
	first := maphash.String(seed, key) % (rememberedKeys / placesOfKey) * placesOfKey
	return p.denied[first : first+placesOfKey]
}

// recordDenial keeps a denial as its key's last one, for the page of that key. If other keys have all the places that
// its hash allows, it replaces the denials of the key that was denied the longest ago. The caller holds p.mu.
func (p *part) recordDenial(e *stint.Event) {
	if p.denied == nil {
		p.denied = make([]denialsOfKey, rememberedKeys)
	}
	at := time.Now()
	for i := range e.Decision.Limits {
		s := &e.Decision.Limits[i]
		if s.Allowed || s.Name != e.Decision.Limit {
			continue
		}
		key := e.Key(i)
		places := p.placesFor(key)
		last := &places[0]
		for i := range places {
			if d := &places[i]; d.n > 0 && d.key == key {
				last = d
				break
			} else if d.newest().Before(last.newest()) {
				last = d
			}
		}
		if last.key != key {
			*last = denialsOfKey{key: strings.Clone(key)}
		}
		last.last[last.n%len(last.last)] = denial{at, e.Route, s.Name, last.key, s.Remaining, s.Capacity, s.Cost,
			s.RetryAfter, s.DryRun}
		last.n++
	}
}

// hasEvents reports whether events were recorded that haven't been counted. The caller holds p.mu.
func (p *part) hasEvents() bool { return p.batch.recorded }

// closeSecond counts the events that were recorded up to a second, and reports whether there were any.
// The caller holds p.mu.
func (p *part) closeSecond(b *board, second uint32) (recorded bool) {
	ended := p.ended.Swap(0)
	p.changes.add(second, [2]int32{running: -ended})
	p.inFlight -= int64(ended)
	recorded = p.hasEvents() || ended > 0
	p.countBatch(b)
	return recorded
}

// countBatch counts the recorded events. The caller holds p.mu.
func (p *part) countBatch(b *board) {
	t := &p.batch
	if t.second == 0 {
		return
	}
	p.decisions.add(t.second, t.decisions)
	p.changes.add(t.second, t.changes)
	p.inFlight += int64(t.changes[running])
	p.waiting += int64(t.changes[waiting])
	p.store.add(t.second, t.took)
	at, from := time.Duration(t.second-1)*time.Second, 0
	var f *figures
	var last []byte
	for i := range t.answers {
		a := &t.answers[i]
		key := t.keys[from:a.end]
		from = a.end
		if !bytes.Equal(key, last) {
			b.keys.add(maphash.Bytes(seed, key))
		}
		last = key
		if i == 0 || a.limit != t.answers[i-1].limit {
			f = p.figuresOf(b, a.limit)
		}
		if f == nil {
			continue
		}
		if a.allowed {
			f.near.add(t.second, a.left, a.capacity)
			f.allowed++
			f.ring.add(t.second, [2]int32{allowed: 1})
			f.admitted.Add(key, at)
			continue
		}
		f.near.add(t.second, 0, a.capacity)
		f.denied++
		if a.deciding {
			f.bound++
		}
		f.ring.add(t.second, [2]int32{denied: 1})
		f.stopped.Add(key, at)
	}
	clear(t.answers) // so that a removed limit isn't kept in memory
	t.decisions, t.changes, t.recorded = [2]int32{}, [2]int32{}, false
	t.answers, t.keys, t.took = t.answers[:0], t.keys[:0], t.took[:0]
}

// figuresOf returns the figures of a limit, or nil if there are too many limits.
func (p *part) figuresOf(b *board, name string) *figures {
	if f := p.figures[name]; f != nil {
		return f
	}
	l := b.limit(name)
	if l == nil {
		return nil
	}
	f := &figures{limit: l, admitted: topkeys.NewRecent(sketchSize, span*time.Second),
		stopped: topkeys.NewRecent(sketchSize, span*time.Second)}
	p.figures[name] = f
	return f
}
