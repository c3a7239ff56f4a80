package stint_test

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// apart checks that no message was written twice in a minute.
func apart(t *testing.T, lines []map[string]any) {
	t.Helper()
	last := map[string]time.Time{}
	for _, line := range lines {
		at, err := time.Parse(time.RFC3339, line["time"].(string))
		if err != nil {
			t.Fatal(err)
		}
		msg := line["msg"].(string)
		if before := last[msg]; !before.IsZero() && at.Sub(before) < time.Minute {
			t.Errorf("%q at %v and %v", msg, before, at)
		}
		last[msg] = at
	}
}

// accounted returns how many messages like the last one the lines account for.
func accounted(lines []map[string]any) (n int) {
	for _, line := range lines {
		if line["msg"] == lines[len(lines)-1]["msg"] {
			suppressed, _ := line["suppressed"].(float64)
			n += 1 + int(suppressed)
		}
	}
	return n
}

// A policy file that is good and bad in turn, ten times a second, makes two lines a
// minute, and the last line says what has become of it.
func TestLogsOfAPolicyFileThatFlips(t *testing.T) {
	for _, flips := range []int{1, 2, 3, 6000, 6001} {
		t.Run(fmt.Sprint(flips), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLogged(slog.LevelInfo)
				l := limiter(t, stint.Rate(1, time.Hour), theKey, h.with())
				for i := range flips {
					var err error
					if i%2 == 0 {
						err = fmt.Errorf("mistake %d", i)
					}
					l.Tell(stint.Event{Kind: stint.EventPolicy, Path: "limits.yaml", Err: err})
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				lines := h.lines(t)
				if most := 2 * (flips/600 + 2); len(lines) > most || len(lines) < min(flips, 20) {
					t.Errorf("%d lines, want %d at the most", len(lines), most)
				}
				apart(t, lines)
				last, want := lines[len(lines)-1], "INFO the policy is in force"
				if flips%2 == 1 {
					want = "ERROR the policy could not be reloaded, and the last good one stays in force"
					if mistake := fmt.Sprint("mistake ", flips-1); last["error"] != mistake {
						t.Errorf("the last line has the error %v, want %s", last["error"], mistake)
					}
				}
				if got := brief([]map[string]any{last}); got != want {
					t.Errorf("the last line is %q, want %q", got, want)
				}
				if got, want := accounted(lines), (flips+flips%2)/2; got != want {
					t.Errorf("%d such changes are accounted for, want %d", got, want)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if more := h.lines(t); len(more) > 0 {
					t.Errorf("later: %v", more)
				}
			})
		})
	}
}

// A store that fails and recovers again and again makes one line a minute of each, and
// the last line says how it is.
func TestLogsOfAStoreThatRecoversAgainAndAgain(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		t.Run(fmt.Sprint(recovers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, s := newLogged(slog.LevelInfo), newSpy()
				l := limiter(t, stint.Rate(1<<20, time.Hour, stint.WithName("x")), theKey, stint.WithStore(s), h.with())
				run := func(err error, d time.Duration) {
					s.failWith(err)
					for range d / time.Second {
						through(l, get("/"), nil)
						time.Sleep(time.Second)
					}
				}
				for range 10 {
					run(errDown, 40*time.Second)
					run(nil, 20*time.Second)
					run(errDown, 2*time.Second)
					run(nil, 20*time.Second)
				}
				want := "ERROR the store failed to decide a request"
				if recovers {
					run(nil, 2*time.Minute)
					want = "INFO the store answers again"
				} else {
					run(errDown, 2*time.Minute)
				}
				synctest.Wait()
				lines := h.lines(t)
				apart(t, lines)
				if got := brief(lines[len(lines)-1:]); got != want {
					t.Errorf("the last of %d lines is %q, want %q", len(lines), got, want)
				}
			})
		})
	}
}

// So does the primary store of a failover.
func TestLogsOfAPrimaryThatRecoversAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLogged(slog.LevelInfo)
		l := limiter(t, stint.Rate(1, time.Hour), theKey, h.with())
		for i := range 100 {
			l.Tell(stint.Event{Kind: stint.EventStoreDegraded, Err: errors.New("down")})
			time.Sleep(time.Duration(1+i%2*40) * time.Second)
			l.Tell(stint.Event{Kind: stint.EventStoreDegraded})
			time.Sleep(20 * time.Second)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		lines := h.lines(t)
		apart(t, lines)
		if got, want := brief(lines[len(lines)-1:]), "INFO the primary store answers again"; got != want || len(lines) < 20 {
			t.Errorf("the last of %d lines is %q, want %q", len(lines), got, want)
		}
	})
}
