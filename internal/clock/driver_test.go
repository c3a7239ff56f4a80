package clock

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestTimersFireInOrder(t *testing.T) {
	d := Drive(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	defer d.End()
	start := Now()
	var fired []string
	note := func(what string) func() {
		return func() { fired = append(fired, fmt.Sprint(what, " ", Since(start))) }
	}
	AfterFunc(3*time.Second, note("third"))
	AfterFunc(time.Second, func() {
		note("first")()
		AfterFunc(time.Second, note("second"))
		AfterFunc(time.Hour, note("too late"))
	})
	stopped := AfterFunc(time.Second, note("stopped"))
	again := AfterFunc(time.Second, note("reset"))
	if !stopped.Stop() || stopped.Stop() {
		t.Error("Stop has not stopped, or twice")
	}
	if !again.Reset(5 * time.Second) {
		t.Error("Reset finds nothing to reset")
	}
	d.Advance(4 * time.Second)
	d.Advance(time.Second)
	want := []string{"first 1s", "second 2s", "third 3s", "reset 5s"}
	if !slices.Equal(fired, want) {
		t.Errorf("fired %q, want %q", fired, want)
	}
	if again.Reset(time.Second) {
		t.Error("a timer that has fired was there to reset")
	}
}

func TestTimerChannel(t *testing.T) {
	d := Drive(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	defer d.End()
	timer := NewTimer(time.Second)
	d.Advance(time.Minute)
	timer.Reset(time.Second) // takes back the instant that wasn't received
	select {
	case at := <-timer.C:
		t.Errorf("received %v", at)
	default:
	}
	d.Advance(time.Hour)
	if at, want := <-timer.C, d.start.Add(time.Minute+time.Second); !at.Equal(want) {
		t.Errorf("received %v, want %v", at, want)
	}
	if Until(d.start) != -(time.Hour + time.Minute) {
		t.Errorf("it is %v from the start", Until(d.start))
	}
}

// Without a driver, the clock is that of package time.
func TestUndriven(t *testing.T) {
	d := Drive(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	d.End()
	if before := time.Now(); Now().Before(before) || Since(before) < 0 {
		t.Error("the clock is not package time's")
	}
	done := make(chan bool)
	AfterFunc(0, func() { close(done) })
	<-done
	timer := NewTimer(0)
	<-timer.C
	timer.Reset(time.Hour)
	if !timer.Stop() {
		t.Error("an hour has gone by")
	}
}
