package stint_test

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// service is a service that does everything right, or nearly so.
type service struct {
	name string
	// open returns what the service does in a step of ten minutes, about ten requests. right
	// says that it makes no mistake; otherwise it makes a single one.
	open    func(t *testing.T, right bool, opts ...stint.Option) (step func(i int))
	mistake string
}

func oneOf[T any](right bool, good, bad T) T {
	if right {
		return good
	}
	return bad
}

var services = []service{
	{"behind a CDN", func(t *testing.T, right bool, opts ...stint.Option) func(int) {
		edges := netip.MustParsePrefix("10.7.0.0/16")
		l := limiter(t, append(opts, stint.Rate(100, time.Minute, stint.WithBurst(20)), stint.Quota(5000, stint.Daily),
			stint.WithKey(oneOf(right, stint.ForwardedIP(edges), stint.RemoteIP())))...)
		return func(i int) {
			for j := range 10 { // clients come and go; some write a field themselves
				r := from(fmt.Sprintf("10.7.0.%d:4711", (i+j)%200), "X-Forwarded-For", fmt.Sprintf("198.51.%d.%d", (i/100)%200, (i*7+j)%250),
					"User-Agent", fmt.Sprint("browser ", j%7), "X-Real-IP", fmt.Sprintf("198.51.%d.%d", (i/100)%200, (i*7+j)%250))
				if j == 3 {
					r.Header.Set("X-Forwarded-For", "192.0.2.1, "+r.Header.Get("X-Forwarded-For"))
				}
				through(l, r, nil)
			}
			if i%6 == 0 {
				through(l, from("10.7.0.3:4711", "User-Agent", "health check"), nil)
			}
		}
	}, "untrusted-proxy"},

	{"with a single attacker", func(t *testing.T, right bool, opts ...stint.Option) func(int) {
		l := limiter(t, append(opts, stint.Rate(10, time.Hour), stint.Ban(20, time.Hour, stint.WithBanFor(time.Hour)),
			stint.WithKey(oneOf(right, stint.RemoteIP(), stint.KeyFunc(remoteAddr))))...)
		return func(i int) {
			for j := range 6 {
				through(l, from(fmt.Sprintf("192.0.2.66:%d", 1025+(i*6+j)%60_000), "User-Agent", "scanner"), nil)
			}
			for j := range 4 {
				through(l, from(fmt.Sprintf("198.51.100.%d:%d", (i*4+j)%250, 1025+(i+j*97)%60_000), "User-Agent", fmt.Sprint("browser ", j)), nil)
			}
		}
	}, "port-in-key"},

	{"of jobs, changed every day", func(t *testing.T, right bool, opts ...stint.Option) func(int) {
		limits := func(n int64) []stint.Option {
			return append(opts, stint.WithKey(stint.GivenKey()), stint.Rate(n, time.Minute, stint.WithBurst(oneOf[int64](right, 8, 7)), stint.WithName("units")),
				stint.Quota(20_000, stint.Daily, stint.WithName("daily")), stint.Concurrency(8, stint.WithName("slots")))
		}
		l := limiter(t, limits(60)...)
		return func(i int) {
			if i%144 == 143 {
				update(t, l, limits(60+int64(i/144))...)
			}
			for j := range 10 {
				if p, err := l.Take(t.Context(), fmt.Sprint("tenant ", j%5), oneOf[int64](j == 0, 8, 1)); err == nil {
					p.Done()
				}
				time.Sleep(10 * time.Second)
			}
		}
	}, "cost-too-high"},
}

// Services that do everything right are warned of nothing for eight days, nor do they log
// anything wrong. The same services with a mistake are, so that the silence says something.
func TestSilence(t *testing.T) {
	if raceEnabled {
		t.Skip("eight days of requests, one after the other, among which the race detector finds nothing")
	}
	for _, s := range services {
		for _, right := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/right %v", s.name, right), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newLogged(slog.LevelWarn)
					warned := make(chan stint.Warning, 99)
					observe := stint.WithObserver(func(e stint.Event) {
						if e.Kind == stint.EventWarning {
							warned <- *e.Warning
						}
					})
					step := s.open(t, right, h.with(), observe)
					begin := time.Now()
					for i := range 8 * 24 * 6 {
						step(i)
						time.Sleep(time.Until(begin.Add(time.Duration(i+1) * 10 * time.Minute)))
					}
					synctest.Wait()
					lines := h.lines(t)
					if right && len(warned)+len(lines) > 0 {
						t.Errorf("%d warnings, and logged %v", len(warned), lines)
					}
					if !right && (len(warned) != 1 || (<-warned).Kind != s.mistake) {
						t.Errorf("not one warning of %v: logged %v", s.mistake, lines)
					}
				})
			})
		}
	}
}
