package stint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/store"
)

// Event is an event of a limiter. Observers may keep an Event, but not its Request, which
// belongs to the server once the request has ended. All observers get the same Decision.Limits
// and must not change it.
//
// Printing or logging an event never shows a key. See Key.
type Event struct {
	Kind EventKind
	// Limiter is the limiter's name by WithLimiterName, or "".
	Limiter string
	// Route is the pattern of the most specific WithRoute that the request matches, or "" if it
	// matches none. If the request is ambiguous and several routes apply, Route has the
	// patterns of all of them, separated by commas.
	Route string
	// Request is the request that was decided. It is nil outside HTTP, for EventEnded, and for
	// events that aren't about a decision (EventSettleFailed, EventUpdated, EventLimitChanged). It
	// is also nil for the events of an Extend or a Settle if no limit depends on the response.
	Request *http.Request
	// Decision is the decision, for EventAdmitted, EventDenied, EventCanceled,
	// EventDryRunDenied, EventBanned, EventSettled, EventExtended, EventNearLimit and EventEnded. Its Limit
	// names the deciding limit: among those that denied, the one with the longest RetryAfter; if none denied, the
	// one with the least remaining. For other events, Limits has only the Name and Cost of each
	// limit that the event is about. Limit is set if exactly one of these limits is enforced.
	Decision Decision
	// Err is the cause of a failure, or of a denial that isn't by a limit. Decision describes a
	// denial by a limit.
	Err error
	// Waited is the time that the request has waited for its turn or a slot. For EventExtended, it
	// is the time that the raise has waited.
	Waited time.Duration
	// StoreTook is the time spent in the store. For EventSettled and EventSettleFailed, it is
	// the time to settle the cost. For EventEnded, it is the time to release slots, or 0 if the
	// same call settled a cost. For all other events of a request, it is the total time of all
	// calls to decide it.
	StoreTook time.Duration
	// Status is the status of the response, for EventEnded. Status is 0 if no limit depends on
	// the response.
	Status int
	// Held is the time that the request held its slots, for EventEnded. Held is 0 if the
	// request took no slots.
	Held time.Duration
	// Change is the change that EventLimitChanged reports.
	Change *LimitChange
	// Pacing describes how a Bandwidth paced the request, for EventPaced.
	Pacing *Pacing
	// Path is the policy file, for EventPolicy.
	Path string
	// Warning is the likely mistake, for EventWarning.
	Warning *Warning
	// EndsWait reports that the event ends the wait that an EventWaiting began. The event is an
	// EventAdmitted, EventDenied, EventCanceled or EventStoreFailed. Each EventWaiting is
	// followed by exactly one event with EndsWait.
	EndsWait bool
	// Percent is the percentage of WithNearLimit that the use of the limit has reached, for EventNearLimit.
	Percent int
	// ByHand reports that Limiter.Ban has started the ban, and not a denial, for EventBanned.
	ByHand bool

	keys []string // of Decision.Limits

	degraded  *degradation // for EventStoreDegraded
	unsettled string       // what the log says of an EventSettleFailed with slots
}

// degradation is what an EventStoreDegraded is about.
type degradation struct {
	store      store.Store // the part of the limiter's store that failed or answers again
	instead    store.Store // the store that decides; nil: none
	incident   any         // identifies what has happened, if several limiters are notified of it
	callFailed bool        // one call has failed, and the breaker is closed
}

// decides returns what decides instead of the store, for log messages.
func (d *degradation) decides() string {
	if d.instead == nil {
		return "failure policies"
	}
	return storeName(d.instead)
}

// clone returns the event with what it points to copied, for one observer among several: what one of
// them writes there, no other reads. Its Request and Err aren't stint's, and to copy the limits of
// each decision would be an allocation for each observer of each request.
func (e Event) clone() Event {
	if e.Change != nil {
		c := *e.Change
		e.Change = &c
	}
	if e.Pacing != nil {
		p := *e.Pacing
		e.Pacing = &p
	}
	if e.Warning != nil {
		w := *e.Warning
		w.Limits = slices.Clone(w.Limits)
		e.Warning = &w
	}
	return e
}

// Key returns the key of Decision.Limits[i] in the form that stores use: escaped, and hashed if
// it is long. It returns "" if there is no such limit. Keys may be addresses or credentials:
// show them to authorized people only. Observers may keep a key.
func (e Event) Key(i int) string {
	if i < 0 || i >= len(e.keys) {
		return ""
	}
	return e.keys[i]
}

// keysOf returns the keys of charges.
func keysOf(charges []store.Charge) []string {
	keys := make([]string, len(charges))
	for i := range charges {
		keys[i] = charges[i].Key
	}
	return keys
}

// setCharges sets the limits and keys of an event that isn't about a decision.
func (e *Event) setCharges(charges []store.Charge) {
	e.keys = keysOf(charges)
	e.Decision.Limits = make([]LimitStatus, len(charges))
	enforced, only := 0, ""
	for i := range charges {
		l := &e.Decision.Limits[i]
		*l = LimitStatus{Name: charges[i].Limit.Name(), DryRun: charges[i].DryRun, Cost: charges[i].Cost}
		if !l.DryRun || len(charges) == 1 {
			enforced, only = enforced+1, l.Name
		}
	}
	if enforced == 1 {
		e.Decision.Limit = only
	}
}

// LogValue implements slog.LogValuer. The value has the event's fields except keys and empty
// fields.
func (e Event) LogValue() slog.Value {
	d := &e.Decision
	retry, limit, why := inSeconds("retry_after", d.RetryAfter), d.Limit, ""
	if d.RetryAfter == Never {
		retry = slog.String("retry_after", "never")
	}
	if e.Err != nil {
		why = e.Err.Error()
	}
	if e.Change == nil {
		e.Change = new(LimitChange)
	}
	if e.Pacing == nil {
		e.Pacing = new(Pacing)
	}
	warning := ""
	if e.Warning != nil {
		limit, warning = strings.Join(e.Warning.Limits, ", "), e.Warning.Kind
	} else {
		e.Warning = new(Warning)
	}
	limit = cmp.Or(limit, e.Change.Limit, e.Pacing.Limit)
	attrs := []slog.Attr{
		slog.String("event", e.Kind.String()), slog.String("limiter", e.Limiter), slog.String("route", e.Route),
		slog.String("limit", limit), slog.Int64("remaining", d.Remaining), retry,
		inSeconds("waited", e.Waited), inSeconds("store_took", e.StoreTook),
		slog.Int("status", e.Status), inSeconds("held", e.Held),
		slog.Int64("from", e.Change.From), slog.Int64("to", e.Change.To), slog.Int64("bytes", e.Pacing.Bytes),
		slog.String("path", e.Path), slog.String("warning", warning), slog.String("see", e.Warning.Link),
		slog.String("error", why),
	}
	if e.Percent != 0 {
		attrs = append(attrs, slog.Int("percent", e.Percent))
	}
	if e.ByHand {
		attrs = append(attrs, slog.Bool("by_hand", true))
	}
	left := ""
	if e.Kind.decided() && d.Limit != "" {
		left = "remaining" // shown even if it is 0
	}
	return slog.GroupValue(withoutEmpty(attrs, left)...)
}

// Format implements fmt.Formatter: every verb prints what LogValue returns.
func (e Event) Format(f fmt.State, _ rune) { format(f, e.LogValue().Group()) }

// MarshalJSON implements json.Marshaler. The JSON object has the fields of LogValue.
func (e Event) MarshalJSON() ([]byte, error) { return toJSON(e.LogValue().Group()) }

// EventKind is the kind of an event. The zero EventKind is invalid.
type EventKind uint8

const (
	// EventAdmitted: all enforced limits let the request pass.
	EventAdmitted EventKind = iota + 1
	// EventDenied: an enforced limit denied.
	EventDenied
	// EventCanceled: the request's context ended during the decision or the wait, because the
	// client disconnected, the server shut down or a deadline passed before the decision; or a
	// waiting request panicked. Nothing stays charged for the request. After a wait,
	// Decision.Delay is the time waited. A deadline that ends a wait is an EventDenied.
	EventCanceled
	// EventBlocked: a predicate of WithBlock denied.
	EventBlocked
	// EventEmptyKey: a request's key is empty. Err is ErrEmptyKey if the request was denied for
	// that, or nil if the limit is in a dry run, which doesn't deny.
	EventEmptyKey
	// EventKeyFailed: a key function returned an error, or a key is too long.
	EventKeyFailed
	// EventLimitsFailed: a WithLimitFunc failed or returned invalid limits, or a WithCost
	// returned a negative cost. The request is denied unless the limit is a dry run. If Err has
	// a StatusCode below 500, the function denied the request deliberately, for instance
	// because a key has no plan.
	EventLimitsFailed
	// EventSourceFailed: the function of a WithLimitSource has failed, but the request isn't denied for that
	// reason. Err wraps a *SourceError. If the source returned limits with the error, such as
	// those of an earlier plan, these limits apply. Otherwise, under FailOpen, the limits of
	// the source are left out. Err is nil when the source answers again.
	EventSourceFailed
	// EventStoreFailed: the store failed. With FailClosed, Err is a *StoreError. With FailOpen,
	// the request was admitted.
	EventStoreFailed
	// EventSettleFailed: a request's final cost or the release of a slot wasn't recorded.
	EventSettleFailed
	// EventDryRunDenied: a limit in dry run would have denied the request. Decision is the
	// decision with that limit enforced, and Decision.Limit names that limit. The event is sent
	// after the event of the decision itself, once for each such limit.
	EventDryRunDenied
	// EventUpdated: Limiter.Update has applied a new configuration.
	EventUpdated
	// EventLimitChanged: the limit of an AdaptiveConcurrency has changed for some key. The
	// event is sent when a request ends, at most once in a sample window for each key.
	EventLimitChanged
	// EventWaiting: the request begins to wait for a slot or for its turn. Decision.Limit is
	// the limit that the request waits for, and Decision.Queued the length of the line.
	// Decision.Delay is an estimate of the time until the turn, or 0 for a slot.
	EventWaiting
	// EventSettled: a WithSettle or a Permit.Settle has changed a request's cost. Decision has
	// the state of the limits after the change.
	EventSettled
	// EventPaced: the response to a request that a Bandwidth paces has ended. The event is sent
	// once for each Bandwidth.
	EventPaced
	// EventBanned: a denial has started a Ban, or would have started one if the Ban weren't a
	// dry run. The event is sent after the event of the decision itself, once for each ban.
	// Decision.Limit names the ban, and Decision.RetryAfter is the time until the ban ends. If
	// ByHand is set, Limiter.Ban has started the ban: the event belongs to no request.
	EventBanned
	// EventEnded: an admitted request has ended: its handler has returned and its slots are
	// released, or Permit.Done was called and no limit depends on the response. Decision has the
	// state of the limits at the last decision, Extend or Settle, with the final cost in Cost.
	// EventEnded is the last event of each admitted request, with two exceptions: the events of a
	// Settle after the end, and of an Extend that the end cancels, come later. For an Allow,
	// EventEnded is sent at once. Every observer that got the EventAdmitted also gets the
	// EventEnded, even if an Update has replaced that observer meanwhile.
	EventEnded
	// EventStoreDegraded: a call or a probe has failed on the primary store of a failover, or,
	// if Err is nil, the breaker has closed. While the breaker is open, Err wraps
	// failover.ErrOpen. The event is sent by the limiter whose WithStore has the store.
	EventStoreDegraded
	// EventPolicy: a policy file has been applied or rejected. If it was rejected, Err is the
	// reason, and the previous policy remains in force.
	EventPolicy
	// EventLeaseLost: the store lost the lease of a slot that this limiter still holds, so
	// another request may have got the slot. The lease has been restored, unless another
	// process has reset the limit. Decision.Limits[0] is the limit, and Key(0) returns its key.
	EventLeaseLost
	// EventExtended: a Permit.Extend has asked the store. Decision is the answer of the limits
	// that the raise is for, and Decision.Allowed reports whether the cost was raised. The Cost
	// of each limit is the units that the raise adds. Err is set if the store failed, as in
	// EventStoreFailed, or if the raise was canceled.
	EventExtended
	// EventNearLimit: a decision, an Extend or a Settle has taken a key's use of a limit to a
	// percentage of WithNearLimit. Percent is that percentage, Decision.Limits[0] the state of the
	// limit, and Key(0) the key. The event follows that of the decision, the Extend or the Settle.
	EventNearLimit
	// EventWarning: the limiter has found a likely mistake in its use. Warning describes the
	// mistake; see WithoutWarnings. The event may be sent before New returns, and on a
	// goroutine of the limiter.
	EventWarning
)

var eventKinds = [...]struct {
	name    string
	decided bool         // it has a decision
	message logs.Message // none: it isn't logged
	over    logs.Message // what the message says is over: the event has no error
	blamed  logs.Message // instead: the error's status says that the caller is at fault
}{
	EventAdmitted:      {name: "Admitted", decided: true},
	EventDenied:        {name: "Denied", decided: true, message: logs.Denied},
	EventCanceled:      {name: "Canceled", decided: true},
	EventBlocked:       {name: "Blocked", message: logs.Denied},
	EventEmptyKey:      {name: "EmptyKey", message: logs.EmptyKey, over: logs.DryRun},
	EventKeyFailed:     {name: "KeyFailed", message: logs.KeyFailed, blamed: logs.KeyDenied},
	EventLimitsFailed:  {name: "LimitsFailed", message: logs.LimitsFailed, blamed: logs.LimitsDenied},
	EventSourceFailed:  {name: "SourceFailed", message: logs.SourceFailed, over: logs.SourceAnswers},
	EventStoreFailed:   {name: "StoreFailed", message: logs.StoreFailed},
	EventSettleFailed:  {name: "SettleFailed", message: logs.SettleFailed},
	EventDryRunDenied:  {name: "DryRunDenied", decided: true, message: logs.DryRun},
	EventUpdated:       {name: "Updated"},
	EventLimitChanged:  {name: "LimitChanged"},
	EventWaiting:       {name: "Waiting"},
	EventSettled:       {name: "Settled", decided: true},
	EventPaced:         {name: "Paced"},
	EventBanned:        {name: "Banned", decided: true, message: logs.Banned},
	EventEnded:         {name: "Ended", decided: true},
	EventStoreDegraded: {name: "StoreDegraded", message: logs.PrimaryFailed, over: logs.PrimaryAnswers},
	EventPolicy:        {name: "Policy", message: logs.PolicyRejected, over: logs.PolicyInForce},
	EventLeaseLost:     {name: "LeaseLost", message: logs.LeaseLost},
	EventWarning:       {name: "Warning", message: logs.Warning},
	EventExtended:      {name: "Extended", decided: true},
	EventNearLimit:     {name: "NearLimit", decided: true},
}

// String returns the constant's name without Event: "Admitted".
func (k EventKind) String() string {
	if k.known() {
		return eventKinds[k].name
	}
	return "EventKind(" + strconv.Itoa(int(k)) + ")"
}

func (k EventKind) known() bool { return k > 0 && int(k) < len(eventKinds) }

// decided reports whether events of the kind have a decision.
func (k EventKind) decided() bool { return k.known() && eventKinds[k].decided }

// message returns the log message of an event, or 0 for none.
func (e *Event) message() logs.Message {
	if !e.Kind.known() {
		return 0
	}
	k := &eventKinds[e.Kind]
	switch {
	case e.Err == nil && k.over != 0:
		return k.over
	case e.Kind == EventStoreDegraded:
		return e.degraded.message(e.Err)
	case e.Kind == EventLimitsFailed && errors.As(e.Err, new(*SourceError)):
		return logs.SourceFailed
	case k.blamed != 0:
		if e.blamesCaller() {
			return k.blamed
		}
	}
	return k.message
}

// message returns the log message of a failure.
func (d *degradation) message(err error) logs.Message {
	switch misconfigured := errors.Is(err, store.ErrMisconfigured); {
	case d.callFailed && misconfigured:
		return logs.CallMisconfigured
	case d.callFailed:
		return logs.CallFailed
	case misconfigured:
		return logs.PrimaryMisconfigured
	}
	return logs.PrimaryFailed
}

// blamesCaller reports whether the event's error is an answer to the caller, such as 403, and not a
// failure.
func (e *Event) blamesCaller() bool {
	var s interface{ StatusCode() int }
	return errors.As(e.Err, &s) && s.StatusCode() < 500
}

// inSeconds is a duration in one unit whatever writes it: slog's handlers disagree about
// theirs.
func inSeconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, d.Seconds()) }

// withoutEmpty leaves out attributes that are empty texts or zero, except the one named
// anyway.
func withoutEmpty(attrs []slog.Attr, anyway string) []slog.Attr {
	return slices.DeleteFunc(attrs, func(a slog.Attr) bool {
		switch v := a.Value; v.Kind() {
		case slog.KindString:
			return v.String() == ""
		case slog.KindFloat64:
			return v.Float64() == 0
		case slog.KindInt64:
			return v.Int64() == 0 && a.Key != anyway
		default:
			return v.Equal(slog.Value{})
		}
	})
}

// format writes attributes as key="value", separated by spaces.
func format(w io.Writer, attrs []slog.Attr) {
	for i, a := range attrs {
		if i > 0 {
			_, _ = io.WriteString(w, " ")
		}
		_, _ = io.WriteString(w, a.Key+"="+strconv.Quote(a.Value.String()))
	}
}

// toJSON returns attributes as a JSON object.
func toJSON(attrs []slog.Attr) ([]byte, error) {
	all := map[string]any{}
	for _, a := range attrs {
		all[a.Key] = a.Value.Any()
	}
	return json.Marshal(all)
}

// LimitChange is a change of the limit of an AdaptiveConcurrency, for observers
// (EventLimitChanged).
type LimitChange struct {
	// Limit is the limit's name. The limit of each key changes separately.
	Limit string
	// From and To are the limits before and after.
	From, To int64
	// Reason is the reason for the change.
	Reason AdaptiveReason
	// InFlight is the number of units in flight.
	InFlight int64
	// Latency is the average latency of the requests that led to the change. Baseline is the
	// latency that it was compared with; for AIMD, that is the timeout. Both are 0 if no
	// request was measured.
	Latency, Baseline time.Duration
}

// Warning is a likely mistake that a limiter has found.
type Warning struct {
	// Kind is one of the kinds that WithoutWarnings lists, such as "one-key". docs/warnings.md
	// explains each mistake and its correction.
	Kind string
	// Limits has the names of the limits that the warning is about. If the warning is about a
	// key, Limits has the names of the limits with that key. Limits is empty for warnings about
	// the limiter, and about the key of a WithLimitFunc.
	Limits []string
	// Text describes the mistake and its correction. Link is the address of the mistake's row
	// in docs/warnings.md.
	Text, Link string
}

// Pacing describes how a Bandwidth paced a request, for observers (EventPaced).
type Pacing struct {
	// Limit is the name of the Bandwidth.
	Limit string
	// Bytes is the number of bytes written of the response's body. RequestBytes is the number
	// of bytes read of the request's body. A body that WithDirection doesn't select counts as
	// 0.
	Bytes, RequestBytes int64
	// Waited is the time by which all limits together delayed writes and reads. For a dry run,
	// which delays nothing, Waited is roughly the time by which this limit would have delayed
	// them.
	Waited time.Duration
	// DryRun reports whether the limit is a dry run, which isn't enforced.
	DryRun bool
	// Err is the reason why the response was cut off: the store failed, the request's context
	// ended, or the limit can never admit a chunk. Err is nil if the response wasn't cut off.
	Err error
}
