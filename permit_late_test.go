package stint_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// eventLog is an observer that records the kinds of its events.
type eventLog struct {
	mu  sync.Mutex
	got []string
}

func (o *eventLog) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, what)
}

func (o *eventLog) Observe(e stint.Event) {
	what := e.Kind.String()
	if e.EndsWait {
		what += " ends a wait"
	}
	o.add(what)
}

// An observer that is added while a request is decided, waits or holds something gets no event of that request, and all
// events of the next.
func TestLateObservers(t *testing.T) {
	const name = "x"
	for _, tt := range []struct {
		name  string
		limit stint.Limit
		whole string // what an early observer gets of one request
	}{
		{"a rate", stint.Rate(1<<20, time.Second, stint.WithName(name)), "Admitted Ended"},
		{"slots", stint.Concurrency(9, stint.WithName(name)), "Admitted Ended"},
		{"a slot that is waited for", stint.Concurrency(1, stint.WithName(name), stint.WithQueue(9)), "Waiting Admitted ends a wait Ended"},
		{"a turn", stint.Rate(1, time.Second, stint.WithName(name), stint.WithMaxWait(time.Minute)), "Waiting Admitted ends a wait Ended"},
		{"a settled cost", stint.Rate(1<<20, time.Second, stint.WithName(name), stint.WithSettle(stint.FailedOnly)), "Admitted Settled Ended"},
	} {
		for _, way := range []struct {
			name string
			add  func(t *testing.T, l *stint.Limiter, o *eventLog, opts []stint.Option)
		}{
			{"Observe", func(_ *testing.T, l *stint.Limiter, o *eventLog, _ []stint.Option) { l.Observe(o.Observe) }},
			{"WithObserver", func(t *testing.T, l *stint.Limiter, o *eventLog, opts []stint.Option) {
				if err := l.Update(append(opts, stint.WithObserver(o.Observe))...); err != nil {
					t.Error(err)
				}
			}},
		} {
			for _, beside := range []bool{false, true} {
				for _, when := range []string{"in the store", "at the admission", "in the handler", "while it waits"} {
					waits := strings.HasPrefix(tt.whole, "Waiting")
					if when == "while it waits" && !waits || when == "at the admission" && !beside {
						continue
					}
					t.Run(strings.Join([]string{tt.name, way.name, when, map[bool]string{true: "beside another", false: "alone"}[beside]}, ", "), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							s, during := newSpy(), func() {}
							s.OnTake = func(c *asks) error {
								err := c.Pass()
								during()
								return err
							}
							opts := []stint.Option{theKey, tt.limit, stint.WithStore(s)}
							l := limiter(t, opts...)
							var late, early eventLog
							var once sync.Once
							armed := false
							added := func(at string) {
								if at == when && armed {
									once.Do(func() { way.add(t, l, &late, opts) })
								}
							}
							if beside {
								l.Observe(func(e stint.Event) {
									if early.Observe(e); e.Kind == stint.EventAdmitted {
										added("at the admission")
									}
								})
							}
							hold := func(during func()) {
								err := l.Admit(httptest.NewRecorder(), get("/"), func(w http.ResponseWriter, _ *http.Request) {
									during()
									w.WriteHeader(200)
								})
								if err != nil {
									t.Error(err)
								}
							}
							// One request holds what the next waits for.
							request := func(during func()) {
								var before *stint.Permit
								if waits {
									p, err := l.Open(httptest.NewRecorder(), get("/"))
									if err != nil {
										t.Fatal(err)
									}
									before = p
								}
								armed = true
								done := make(chan struct{})
								go func() { defer close(done); hold(during) }()
								synctest.Wait()
								added("while it waits")
								before.Done()
								<-done
								time.Sleep(time.Minute)
							}
							during = func() { added("in the store") }
							request(func() { added("in the handler") })
							if got := strings.Join(late.got, " "); got != "" && got != "Updated" {
								t.Errorf("events of the request under way: %s", got)
							}
							late.got = nil
							request(func() {})
							want, or := tt.whole, tt.whole
							if waits { // and the request before it, whose end lets this one in
								want, or = "Admitted Waiting Ended Admitted ends a wait Ended", "Admitted Waiting Admitted ends a wait Ended Ended"
							}
							if got := strings.Join(late.got, " "); got != want && got != or {
								t.Errorf("events of the next: %s, want %s", got, want)
							}
						})
					})
				}
			}
		}
	}
}
