package stint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/background"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/failure"
	"github.com/stint-go/stint/internal/limit"
	"github.com/stint-go/stint/internal/logs"
	"github.com/stint-go/stint/internal/near"
	"github.com/stint-go/stint/store"
)

// WithObserver passes the limiter's events to f, like Limiter.Observe, from the first event. By
// default a limiter has no observer. If WithObserver is given several times, all functions are
// called in order. An Update with a WithObserver replaces all earlier functions of
// WithObserver. The replaced functions still get the events of requests whose decision had
// begun. New returns an error if f is nil. f is called concurrently.
func WithObserver(f func(Event)) Option {
	return checkedOption(f != nil, "WithObserver(nil)", "pass a function, or leave it out",
		func(c *config) { c.observers = append(c.observers, f) })
}

// Observe passes every event of the limiter, and of the limiters derived from it by With, to f
// until stop is called. f runs on the request's goroutine, so it should be quick. f must be
// safe for concurrent use. No lock is held while f runs, so f may call the limiter. Observers
// are called in the order in which they were added. Those of the extended limiter are called
// before those of a derived limiter.
//
// Observers stay after an Update. Some events, such as EventStoreDegraded, are sent on a
// goroutine of the limiter. If f panics there, or on an EventUpdated, the panic is logged.
//
// f gets either all events of a request or none. It gets all if the request's decision begins
// after Observe and before stop, even if some of the events are sent after stop. So a gauge
// that f maintains, such as requests in flight, is never negative and ends at zero.
//
// Observe and stop are safe for concurrent use.
func (l *Limiter) Observe(f func(Event)) (stop func()) {
	if f == nil {
		return func() {}
	}
	l.currentVersion()
	l.family.mu.Lock()
	defer l.family.mu.Unlock()
	remove := l.observers.add(f)
	l.family.updateDestinations()
	return func() {
		l.family.mu.Lock()
		defer l.family.mu.Unlock()
		remove()
		l.family.updateDestinations()
	}
}

// observers are the functions that were given to a limiter itself. It isn't safe for concurrent use.
type observers struct {
	byOption  []func(Event)  // WithObserver
	byObserve []*func(Event) // Limiter.Observe: each at an address of its own, by which it is removed
}

// add adds an observer after the others. remove removes it.
func (o *observers) add(f func(Event)) (remove func()) {
	at := &f
	o.byObserve = append(o.byObserve, at)
	return func() {
		o.byObserve = slices.DeleteFunc(o.byObserve, func(other *func(Event)) bool { return other == at })
	}
}

// appendTo returns others and, after them, the observers in the order in which they are called.
func (o *observers) appendTo(others []func(Event)) []func(Event) {
	all := slices.Concat(others, o.byOption)
	for _, added := range o.byObserve {
		all = append(all, *added)
	}
	return all
}

// observerList has all observers of a limiter, including those of the limiters that it extends. It is
// immutable: another replaces it. A nil observerList has none. A request keeps the list that it
// begins with, so each observer gets all of its events or none.
type observerList struct{ all []func(Event) }

// send passes an event to all. If one panics, the others get it all the same: who counts requests
// in flight must get both the beginning and the end of each.
func (a *observerList) send(e *Event) {
	if a != nil {
		a.sendFrom(0, e)
	}
}

// sendFrom passes an event to the observers from the one with index i on.
func (a *observerList) sendFrom(i int, e *Event) {
	defer func() {
		if i < len(a.all) { // one panics
			a.sendFrom(i+1, e)
		}
	}()
	for ; i < len(a.all); i++ {
		a.all[i](e.clone())
	}
}

// destinations are where a limiter's events and log lines go. Its versions share them.
type destinations struct {
	observers   atomic.Pointer[observerList] // its observers, or nil if there are none; set under family.mu
	storeFailed atomic.Int64                 // when the store last failed, in Unix nanoseconds; 0: it answers
	log         atomic.Pointer[logs.Log]     // of failures, denials and warnings
}

// subject is the request that an event is about. Its method event makes every event of a
// request, and sets what all of them have. Functions that know more set the rest.
// Events about the limiter are made where they occur.
type subject struct {
	route     string
	request   *http.Request // nil outside HTTP, and when it may belong to the server again
	observers *observerList // that the request began with
}

// event returns an event about a request.
func (s subject) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Route: s.route, Request: s.request, Err: err}
}

// later returns the subject of events that come when the request may be over.
func (s subject) later() subject {
	s.request = nil
	return s
}

// sender sends events to a limiter's observers, and writes their lines to its log. It has the
// limiter's name, which an Update may change, and its destinations, which outlive Updates.
type sender struct {
	name         string // by WithLimiterName, or ""
	destinations *destinations
	store        store.Store // in which the limiter counts
	near         *near.Table // of the limiter's family
}

// observers returns those who observe the limiter now, or nil if nobody does.
func (s *sender) observers() *observerList { return s.destinations.observers.Load() }

// send writes an event's line, if it has one, and sends the event to the observers.
func (s *sender) send(to *observerList, e *Event) {
	e.Limiter = s.name
	if e.Kind == EventStoreFailed {
		s.destinations.storeFailed.Store(time.Now().UnixNano())
	}
	defer to.send(e) // also if the log panics
	if m := e.message(); m != 0 {
		s.write(m, e)
	}
}

// sendSafely sends an event that isn't a request's to those who observe the limiter now. A panic is
// logged, and goes no further.
func (s *sender) sendSafely(e Event) {
	background.Do("notifying observers", func() { s.send(s.observers(), &e) })
}

// sendAbout sends an event that is about charges, and about no decision.
func (s *sender) sendAbout(to *observerList, e *Event, charges []store.Charge) {
	e.setCharges(charges)
	s.send(to, e)
}

// sendDecision sends an event with a call's decision and keys. If it says that the call is
// admitted or denied, the events of bans and dry runs follow.
func (s *sender) sendDecision(to *observerList, e *Event, c *decide.Call) {
	e.setDecision(c)
	if e.Kind == EventCanceled {
		e.Decision.setCanceled()
	}
	s.send(to, e)
	if e.Kind == EventAdmitted || e.Kind == EventDenied {
		s.sendConsequences(to, e, c)
	}
}

// setDecision sets the decision and the keys of a call.
func (e *Event) setDecision(c *decide.Call) {
	e.Decision.set(c, make([]LimitStatus, len(c.Results)))
	e.keys = keysOf(c.Charges)
}

// sendConsequences sends the events of bans that a decision has started, and of dry runs that would
// have denied it. They say the same as the decision's event, except that only one event ends a wait. Then come those
// of limits that are near.
func (s *sender) sendConsequences(to *observerList, decided *Event, c *decide.Call) {
	e := *decided
	e.EndsWait = false
	for i := range c.Results {
		if c.Results[i].Begun {
			e.Kind, e.Decision = EventBanned, decided.Decision.deniedBy(i)
			s.send(to, &e)
		}
	}
	for i := range c.Results {
		if c.Charges[i].DryRun && !c.Results[i].OK {
			e.Kind, e.Err, e.Decision = EventDryRunDenied, nil, decided.Decision.deniedBy(i)
			s.send(to, &e)
		}
	}
	if decided.Kind == EventAdmitted {
		s.sendNearLimits(subject{decided.Route, decided.Request, to}, c)
	}
}

// sendNearLimits sends the events of limits that a call which was granted has brought a key near to.
func (s *sender) sendNearLimits(of subject, c *decide.Call) {
	for i, l := range c.Limits {
		if l.Marks != nil && near.UseKnown(&c.Charges[i], &c.Results[i]) {
			s.sendIfNear(of, l, &c.Charges[i], &c.Results[i], c.Charges[i].Cost)
		}
	}
}

// sendIfNear sends an event if a charge, which has added units to a key's use of a limit, has taken it to one of the
// limit's marks. An event that would be left out of the table isn't sent but logged, since its key could send more.
func (s *sender) sendIfNear(of subject, l *limit.Limit, c *store.Charge, r *store.Result, added int64) {
	if of.observers == nil {
		return
	}
	percent, full := s.near.Reached(l, c, r, added)
	if percent == 0 {
		return
	}
	var status LimitStatus
	status.set(c, r)
	e := of.event(EventNearLimit, nil)
	e.Limiter, e.Percent, e.keys = s.name, percent, []string{c.Key}
	e.Decision = Decision{Allowed: true, Limit: status.Name, Remaining: status.Remaining,
		ResetAfter: status.ResetAfter, Limits: []LimitStatus{status}}
	if full {
		s.write(logs.NearLimitLeftOut, &e)
		return
	}
	s.send(of.observers, &e)
}

// sendBans sends the events of bans by hand, for those that have begun.
func (s *sender) sendBans(bans []store.Charge, results []store.Result, took time.Duration) {
	for i := range results {
		if !results[i].Begun {
			continue
		}
		var status LimitStatus
		status.set(&bans[i], &results[i])
		e := subject{}.event(EventBanned, nil)
		e.ByHand, e.StoreTook, e.keys = true, took, []string{bans[i].Key}
		e.Decision = Decision{Limits: []LimitStatus{status}}.deniedBy(0)
		s.send(s.observers(), &e)
	}
}

// sendUnsettled sends the event of a settlement that the store could not make, and returns its
// error.
func (s *sender) sendUnsettled(of subject, done decide.Settlement) error {
	if done.Err == nil {
		return nil
	}
	err := &StoreError{done.Err}
	s.sendSettleFailed(of, done.Charges, done.Took, err)
	return err
}

// sendSettleFailed sends the event of charges that could not be settled.
func (s *sender) sendSettleFailed(of subject, charges []store.Charge, took time.Duration, err error) {
	e := of.later().event(EventSettleFailed, err)
	e.StoreTook, e.unsettled = took, unsettledText(charges)
	s.sendAbout(of.observers, &e, charges)
}

// unsettledText says what could not be settled, if charges hold slots, or is "".
func unsettledText(charges []store.Charge) string {
	slots := 0
	for i := range charges {
		if charges[i].Limit.Algorithm() == store.Concurrency {
			slots++
		}
	}
	switch slots {
	case 0:
		return ""
	case len(charges):
		return "a request's slot could not be released, so it stays taken until its lease ends"
	}
	return "a request's slot could not be released, and its final cost not be recorded: " +
		"the slot stays taken until its lease ends, and the earlier cost stays charged"
}

// WithLogger sets the logger for problems (failures of the store, of key functions, limit
// functions and limit sources; charges that could not be settled, lost leases, likely
// mistakes), and for changes by an Update or a policy file. A message about a limit or a store
// is logged at once, and then at most once a minute. At the end of the minute, the latest
// suppressed message is logged with the number of suppressed messages. The beginning and the
// end of a failure are logged at once, and the end drops suppressed messages. Limiters that share a
// store and a log handler log the store's failures once.
//
// At level Debug, the limiter logs its limits when it is made, each denial, each ban, and each
// request that a dry run would have denied. docs/observing.md lists the messages.
//
// The default is slog.Default(). A limiter made by With has the logger of the limiter that it
// extends. An Update without WithLogger and WithLogKeys keeps both settings. To log nothing,
// use slog.New(slog.DiscardHandler). New returns an error if logger is nil.
func WithLogger(logger *slog.Logger) Option {
	return checkedOption(logger != nil, "WithLogger(nil)", "use slog.New(slog.DiscardHandler) for no log, or leave it out",
		func(c *config) { c.logger = logger })
}

// WithLogKeys adds keys to the log messages about denials, bans, lost leases and failures of
// the store. A key is logged in the form in which it is stored, and may be an address or a
// credential. By default no key is logged. The error text of a KeyFunc is always logged
// unchanged.
func WithLogKeys() Option {
	return option("WithLogKeys", func(c *config) { c.logKeys = true })
}

// write writes an event's line to the log.
func (s *sender) write(m logs.Message, e *Event) {
	log, ctx := s.destinations.log.Load(), contextOf(e.Request)
	if !log.Shows(ctx, m) {
		return
	}
	line := logs.Line{Message: m, About: [2]any{log, e.Decision.Limit}}
	var about store.Store
	switch e.Kind {
	case EventStoreDegraded:
		about = cmp.Or(e.degraded.store, s.store)
		line.About, line.Whole, line.Incident = addressOf(about), addressOf(s.store), e.degraded.incident
	case EventStoreFailed, EventExtended:
		about = s.store
		line.About = addressOf(about)
	case EventSettleFailed:
		about = s.store
		line.About, line.Text = addressOf(about), e.unsettled
	case EventBanned:
		ban := func(l LimitStatus) bool { return l.Name == e.Decision.Limit }
		if i := slices.IndexFunc(e.Decision.Limits, ban); i >= 0 && e.Decision.Limits[i].DryRun {
			line.Text = "a ban in a dry run would have begun"
		}
	case EventSourceFailed, EventLimitsFailed:
		var f *failure.Error
		if !errors.As(e.Err, &f) {
			break
		}
		if m != logs.SourceFailed {
			line.Text = limitsFailedText(m, f)
			break
		}
		if f.Source == nil {
			break
		}
		about := "limits can't be loaded"
		if f.Source.Invalid {
			about = "limits that were loaded are invalid"
		}
		switch source := f.Source; {
		case source.Known:
			return
		case source.OfKey:
			about += " for one key"
			line.About = [3]any{log, e.Decision.Limit, about}
			fallthrough
		default:
			line.Text = about + ", and " + source.Holds
		}
	case EventPolicy:
		line.About = [2]any{log, e.Path}
	case EventWarning:
		line.Text, line.About = e.Warning.Text, [3]any{log, e.Warning.Kind, strings.Join(e.Warning.Limits, "\x00")}
	}
	var request []slog.Attr
	if r := e.Request; (m == logs.Denied || m == logs.EmptyKey || m == logs.KeyDenied || m == logs.LimitsDenied) &&
		r != nil && r.URL != nil {
		request = []slog.Attr{slog.String("method", r.Method), slog.String("url_path", fmt.Sprintf("%.200s", r.URL.Path))}
	}
	logged := *e
	logged.Request = nil // the line may be written when the request is over
	line.Attrs = func(keys bool) []slog.Attr {
		attrs := append(logged.LogValue().Group(), request...)
		if about != nil {
			attrs = append(attrs, slog.String("store", storeName(about)))
		}
		if d := logged.degraded; d != nil && logged.Err != nil {
			attrs = append(attrs, slog.String("decides", d.decides()))
		}
		if logged.Kind == EventStoreFailed || logged.Kind == EventExtended {
			became := "passed"
			if errors.As(logged.Err, new(*StoreError)) {
				became = "denied"
			}
			attrs = append(attrs, slog.String("request", became))
		}
		if keys {
			for i := range logged.Decision.Limits {
				if key := logged.Key(i); key != "" && logged.Decision.Limits[i].Name == logged.Decision.Limit {
					attrs = append(attrs, slog.String("key", key))
				}
			}
		}
		return attrs
	}
	log.Write(ctx, line)
}

// limitsFailedText returns the text of a request whose limits can't be determined, if it goes on, or "".
func limitsFailedText(m logs.Message, f *failure.Error) string {
	switch {
	case f.Beside:
		return "a function returned limits and an error, and the limits apply to the request"
	case f.WouldDeny && m == logs.LimitsDenied:
		return "without the dry run, the function that returns a request's limits would have denied it"
	case f.WouldDeny:
		return "a request would have been denied without the dry run, because its limits could not be determined"
	}
	return ""
}

func contextOf(r *http.Request) context.Context {
	if r == nil {
		return context.Background()
	}
	return r.Context()
}

// recovered is how long a store must not have failed before it counts as answering again.
// If only a part of a store fails, some calls succeed all the time.
const recovered = 10 * time.Second

// writeRecovery writes that a store that had failed answers again, once it has decided a request.
func (s *sender) writeRecovery() {
	failed := s.destinations.storeFailed.Load()
	if failed == 0 || time.Since(time.Unix(0, failed)) < recovered ||
		!s.destinations.storeFailed.CompareAndSwap(failed, 0) {
		return
	}
	s.destinations.log.Load().Write(context.Background(), logs.Line{
		Message: logs.StoreAnswers, About: addressOf(s.store),
		Attrs: func(bool) []slog.Attr { return s.attrs(slog.String("store", storeName(s.store))) },
	})
}

// storeName says what a store is.
func storeName(s store.Store) string {
	if named, ok := s.(fmt.Stringer); ok {
		return named.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}

// addressOf identifies a store without keeping it in memory.
func addressOf(s store.Store) any {
	if v := reflect.ValueOf(s); v.Kind() == reflect.Pointer {
		return v.Pointer()
	}
	return reflect.TypeOf(s)
}

// attrs returns a line's attributes, after the limiter's name if it has one.
func (s *sender) attrs(all ...slog.Attr) []slog.Attr {
	if s.name != "" {
		all = append([]slog.Attr{slog.String("limiter", s.name)}, all...)
	}
	return all
}

// mostListed bounds the length of a log line.
const mostListed = 50

// joinListed joins the items of a list. It counts those beyond mostListed.
func joinListed(all []string) string {
	if more := len(all) - mostListed; more > 0 {
		all = append(all[:mostListed:mostListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// updateDestinations gives each limiter its own observers after its parent's, and its log. The caller holds f.mu.
func (f *family) updateDestinations() {
	for _, m := range f.members {
		var log *logs.Log // the parent's
		var others []func(Event)
		if m.parent != nil {
			log = m.parent.destinations.log.Load()
			if to := m.parent.destinations.observers.Load(); to != nil {
				others = to.all
			}
		}
		m.destinations.log.Store(logs.Derive(log, m.destinations.log.Load(), m.logger, m.logKeys))
		var to *observerList
		if all := m.observers.appendTo(others); len(all) > 0 {
			to = &observerList{all}
		}
		m.destinations.observers.Store(to)
	}
}

// ReportPolicy sends an EventPolicy to the limiter's observers and logs it. A nil err means
// that the policy in file is in force. Otherwise err is the reason why the policy was rejected,
// and the previous policy remains in force. ReportPolicy is for packages, such as policy, that
// read options from files and pass them to Update. A panic of an observer is recovered and
// logged.
func (l *Limiter) ReportPolicy(file string, err error) {
	l.sendSafely(Event{Kind: EventPolicy, Path: file, Err: err})
}

// sendSafely passes an event that isn't a request's to the limiter's observers and its log.
func (l *Limiter) sendSafely(e Event) { l.currentVersion().events.sendSafely(e) }
