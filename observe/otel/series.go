package stintotel

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/stint-go/stint"
)

const (
	limiterKey   = attribute.Key("stint.limiter")
	routeKey     = attribute.Key("stint.route")
	limitKey     = attribute.Key("stint.limit")
	outcomeKey   = attribute.Key("stint.outcome")
	operationKey = attribute.Key("stint.store.operation")
	storeKey     = attribute.Key("stint.store.name")
	reasonKey    = attribute.Key("stint.adaptive.reason")
	directionKey = attribute.Key("network.io.direction")
	overflowKey  = attribute.Key("otel.metric.overflow")
	errorKey     = attribute.Key("error.type")
	warningKey   = attribute.Key("stint.warning")
	byHandKey    = attribute.Key("stint.by_hand")
	percentKey   = attribute.Key("stint.percent")
	dryRunKey    = attribute.Key("stint.dry_run")
)

// outcomes are the outcomes of a request, by the event that reports them.
var outcomes = [...]string{
	stint.EventAdmitted:     "admitted",
	stint.EventDenied:       "denied",
	stint.EventCanceled:     "canceled",
	stint.EventBlocked:      "blocked",
	stint.EventEmptyKey:     "empty_key",
	stint.EventKeyFailed:    "key_failed",
	stint.EventLimitsFailed: "limits_failed",
	stint.EventStoreFailed:  "store_failed",
	keyDenied:               "key_denied",
	limitsDenied:            "limits_denied",
}

// Outcomes of a request whose key or limit function denies it: the error is an answer, such as
// 403, and not a failure.
const (
	keyDenied = iota + int(stint.EventWarning) + 1
	limitsDenied
)

// outcomeOf returns the index of an event's outcome.
func outcomeOf(e *stint.Event) int {
	switch {
	case e.Kind == stint.EventKeyFailed && isAnswer(e.Err):
		return keyDenied
	case e.Kind == stint.EventLimitsFailed && isAnswer(e.Err):
		return limitsDenied
	}
	return int(e.Kind)
}

func isAnswer(err error) bool {
	var s interface{ StatusCode() int } // which escapes
	return errors.As(err, &s) && s.StatusCode() < 500
}

// Outcomes of one limit.
const (
	allowed = iota
	denied
	dryRunDenied
)

var answers = [...]string{allowed: "allowed", denied: "denied", dryRunDenied: "dry_run_denied"}

// Outcomes of a raise of a request's cost.
const (
	extensionGranted = iota
	extensionDenied
	extensionCanceled
)

var extensions = [...]string{extensionGranted: "granted", extensionDenied: "denied", extensionCanceled: "canceled"}

var reasons = [...]stint.AdaptiveReason{
	stint.NotAdaptive, stint.AdaptiveStart, stint.AdaptiveGrowing, stint.AdaptiveQueueing,
	stint.AdaptiveDrops, stint.AdaptiveSteady, stint.AdaptiveUnused,
}

// attributes is an attribute set as an option of each kind of measurement, so that a
// measurement allocates neither the set nor the list of options.
type attributes struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func set(all ...attribute.KeyValue) attributes {
	o := metric.WithAttributeSet(attribute.NewSet(all...))
	return attributes{[]metric.AddOption{o}, []metric.RecordOption{o}, []metric.ObserveOption{o}}
}

// id distinguishes series. Empty parts are left out of the attributes.
type id struct{ limiter, route, limit string }

func (i id) attributes() (all []attribute.KeyValue) {
	for _, kv := range []attribute.KeyValue{limiterKey.String(i.limiter), routeKey.String(i.route),
		limitKey.String(i.limit)} {
		if kv.Value.AsString() != "" {
			all = append(all, kv)
		}
	}
	return all
}

// series holds the attribute sets of an id, and the values of its gauges.
type series struct {
	plain    attributes
	outcome  [len(outcomes)]attributes
	answer   [len(answers)]attributes
	extended [len(extensions)]attributes
	sent     attributes // bytes of responses
	received attributes // of requests
	// pending is what admitted requests add to counters, until flushCounters: adding to a counter of the
	// SDK takes ten times as long.
	pending struct {
		admitted, allowed, charged, settled level
	}
	waiting  level
	slots    level
	adaptive struct {
		limit, latency, baseline level // the latter in nanoseconds
		reason                   [len(reasons)]attributes
	}
}

func newSeries(all []attribute.KeyValue) *series {
	with := func(kv attribute.KeyValue) attributes {
		return set(append(all[:len(all):len(all)], kv)...)
	}
	s := &series{
		plain: set(all...),
		sent:  with(directionKey.String("transmit")), received: with(directionKey.String("receive")),
	}
	for i, outcome := range outcomes {
		if outcome != "" {
			s.outcome[i] = with(outcomeKey.String(outcome))
		}
	}
	for i, answer := range answers {
		s.answer[i] = with(outcomeKey.String(answer))
	}
	for i, outcome := range extensions {
		s.extended[i] = with(outcomeKey.String(outcome))
	}
	for i, reason := range reasons {
		s.adaptive.reason[i] = with(reasonKey.String(reason.String()))
	}
	return s
}

// nearLimit returns the attributes of a key that has reached a percentage. That is rare, so they are made each time.
func (s *series) nearLimit(percent int, dryRun bool) []metric.AddOption {
	more := []attribute.KeyValue{percentKey.Int(percent)}
	if dryRun {
		more = append(more, dryRunKey.Bool(true))
	}
	return append(slices.Clone(s.plain.add), metric.WithAttributes(more...))
}

// level is the value of a gauge, or a pending addition to a counter. It is reported once it
// has been used.
type level struct {
	value atomic.Int64
	used  atomic.Bool
}

func (l *level) add(n int64) {
	l.value.Add(n)
	l.markUsed()
}

func (l *level) set(n int64) {
	l.value.Store(n)
	l.markUsed()
}

func (l *level) markUsed() {
	if !l.used.Load() {
		l.used.Store(true)
	}
}

// maxSeries bounds the number of series.
const maxSeries = 1000

// table finds the value of a key without a lock or an allocation.
type table[K comparable, V any] struct {
	values   sync.Map   // K to *V
	mu       sync.Mutex // held to add, and guards n
	n        int
	overflow *V // of keys beyond most
	make     func(K) *V
}

func (t *table[K, V]) at(k K) *V {
	if v, ok := t.values.Load(k); ok {
		return v.(*V)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.values.Load(k); ok {
		return v.(*V)
	}
	if t.n == maxSeries {
		return t.overflow
	}
	v := t.make(k)
	t.values.Store(k, v)
	t.n++
	return v
}

func (t *table[K, V]) all(yield func(*V) bool) {
	t.values.Range(func(_, v any) bool { return yield(v.(*V)) })
}
