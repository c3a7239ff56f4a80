package client

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// All requests to a host wait for the pause that one of them was asked for, and then
// don't go all at once; requests to other hosts don't wait.
func TestTransportGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 64
		srv := newServer(func(n int, r *http.Request) *http.Response {
			if n == 0 {
				return answer("429 Retry-After: 20")
			}
			return answer("200")
		})
		rt := transport(nil, srv)
		call := func(url string) {
			resp, err := rt.RoundTrip(get(url))
			_ = mustRead(t, resp, err)
		}
		var all sync.WaitGroup
		all.Go(func() { call("http://a.test/") })
		synctest.Wait() // the first is in its pause
		for range callers {
			all.Go(func() { call("http://A.test:80/elsewhere") })
		}
		synctest.Wait()
		if n := len(srv.times()); n != 1 {
			t.Fatalf("%d requests did not keep the pause", n-1)
		}
		call("https://a.test/") // other hosts
		call("http://b.test/")
		if at := srv.times(); at[1] != 0 || at[2] != 0 {
			t.Error("other hosts had to wait")
		}
		all.Wait()
		late := srv.times()[3:]
		if len(late) != 1+callers {
			t.Fatalf("%d requests, want %d", len(late), 1+callers)
		}
		step := maxStep // a tenth of the pause would be more
		for i := range late {
			since := late[i] - 20*time.Second
			if since < 0 {
				t.Fatalf("request %d came %v early", i, -since)
			}
			if i > 0 && late[i] == late[i-1] {
				t.Errorf("requests %d and %d came together", i-1, i)
			}
		}
		// Doubling by the step: few within the first one, all within eight.
		first := 0
		for _, at := range late {
			if at-20*time.Second < step {
				first++
			}
		}
		if last := late[len(late)-1] - 20*time.Second; first > 3 || last > 8*step {
			t.Errorf("%d in the first step, the last after %v", first, last)
		}
	})
}

// A server that stays overloaded stops the requests that are still in line.
func TestTransportGateCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 64
		srv := newServer(func(n int, r *http.Request) *http.Response {
			if n < 3 {
				return answer("429 Retry-After: 10")
			}
			return answer("200")
		})
		rt := transport(nil, srv)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				if i > 0 {
					time.Sleep(time.Millisecond)
				}
				resp, err := rt.RoundTrip(get("http://a.test/"))
				_ = mustRead(t, resp, err)
			})
		}
		all.Wait()
		if n := len(srv.times()); n != callers+3 {
			t.Errorf("%d requests for %d callers, want only the three denied to be sent again", n, callers)
		}
		if srv.at[1] < 10*time.Second || srv.at[2] < 20*time.Second || srv.at[3] < 30*time.Second {
			t.Errorf("the pauses were not kept: %v", srv.at[:4])
		}
	})
}

// An answer that was granted may say that it was the last for now.
func TestTransportHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script(`200 RateLimit: "p";r=0;t=5`)
		rt := transport(nil, srv, retries(0))
		for range 2 {
			resp, err := rt.RoundTrip(get("http://a.test/"))
			_ = mustRead(t, resp, err)
		}
		if !within(srv.at[1], 5*time.Second) {
			t.Errorf("the second came after %v, want 5s", srv.at[1])
		}
	})
}

// A denial without a time that can be true holds all requests to the host back, for longer the more
// often a request was denied. It need not be a request that may be retried.
func TestTransportGateWithoutATime(t *testing.T) {
	post := func() *http.Request {
		r := get("http://a.test/")
		r.Method = "POST"
		return r
	}
	for _, denial := range []string{"429", "503", "429 Retry-After: 0", `503 RateLimit: "p";r=0;t=0`} {
		for _, test := range []struct {
			denied func() *http.Request
			script []string
			opens  time.Duration
		}{
			{post, []string{denial}, time.Second},
			{func() *http.Request { return get("http://a.test/") }, []string{denial, denial}, 3 * time.Second},
		} {
			synctest.Test(t, func(t *testing.T) {
				srv := script(test.script...)
				rt := transport(nil, srv)
				var all sync.WaitGroup
				call := func(r *http.Request) {
					resp, err := rt.RoundTrip(r)
					_ = mustRead(t, resp, err)
				}
				all.Go(func() { call(test.denied()) })
				time.Sleep(test.opens - 500*time.Millisecond)
				all.Go(func() { call(post()) })
				all.Wait()
				for _, at := range srv.at[len(test.script):] {
					if at < test.opens || at > test.opens+time.Second {
						t.Errorf("%s, %d times: requests at %v, want none before %v", denial, len(test.script), srv.at, test.opens)
					}
				}
			})
		}
	}
}

// A retry waits for the longest pause in force, not only for its own.
func TestTransportRetryKeepsLongerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := script("429 Retry-After: 300", "429 Retry-After: 2")
		rt := transport(nil, srv)
		for i := range 2 {
			resp, err := rt.RoundTrip(get("http://a.test/"))
			if err != nil || resp.StatusCode != 429 {
				t.Fatalf("request %d: %v, %v", i, resp, err)
			}
		}
		if n := len(srv.times()); n != 2 {
			t.Errorf("%d requests, want 2: neither is to be sent again", n)
		}
	})
}

func TestGatesAreBounded(t *testing.T) {
	var gs gates
	now := noon
	for i := range 3 * maxGates {
		gs.close(gateKey{host: fmt.Sprint(i)}, now, time.Duration(1+i)*time.Second)
		if n := len(gs.closed); n > maxGates {
			t.Fatalf("%d gates", n)
		}
	}
	// The last one gave way each time; those that open soon are kept.
	if opens, _ := gs.place(gateKey{host: "0"}, now); opens.IsZero() {
		t.Error("a gate that opens soon was forgotten")
	}
	gs.close(gateKey{host: strings.Repeat("x", 1+maxName)}, now, time.Second)
	if opens := gs.opening(gateKey{host: strings.Repeat("x", 1+maxName)}); !opens.IsZero() {
		t.Error("a name beyond bounds was kept")
	}
	// Those that are over make room first.
	later := now.Add(24 * time.Hour)
	gs.close(gateKey{host: "new"}, later, time.Second)
	if n := len(gs.closed); n != 1 {
		t.Errorf("%d gates, want the new one", n)
	}
	if opens, turn := gs.place(gateKey{host: "new"}, later.Add(time.Hour)); !opens.IsZero() || !turn.IsZero() || len(gs.closed) != 0 {
		t.Error("a gate that is over was not forgotten")
	}
}

func TestGateCloses(t *testing.T) {
	var gs gates
	key := gateKey{host: "a"}
	gs.close(key, noon, 10*time.Second)
	gs.close(key, noon.Add(time.Second), 2*time.Second) // asks for less
	if got := gs.opening(key); !got.Equal(noon.Add(10 * time.Second)) {
		t.Errorf("opens at %v", got)
	}
	gs.close(key, noon.Add(time.Second), 20*time.Second)
	if got := gs.opening(key); !got.Equal(noon.Add(21 * time.Second)) {
		t.Errorf("opens at %v", got)
	}
	for n := range 1000 {
		if opens, turn := gs.place(key, noon); turn.Before(opens) {
			t.Fatalf("turn %d is %v early", n, opens.Sub(turn))
		}
	}
}

// A pause of another process extends a gate only if it surely ends later: what two answers say about one pause
// differs by the time that they take.
func TestGateAdopts(t *testing.T) {
	var gs gates
	key := gateKey{host: "a"}
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	gs.adopt(key, at(-1), at(0), 10*time.Second)
	opens, _ := gs.place(key, at(6))
	if !opens.Equal(at(10_000)) {
		t.Errorf("opens at %v", opens)
	}
	for _, answer := range [...]struct {
		asked, answered int
		left            time.Duration
	}{
		{0, 0, 10 * time.Second},
		{1, 1, 9999 * time.Millisecond},
		{1, 1, 9999*time.Millisecond + 999*time.Microsecond}, // rounded up
		{5, 50, 9995 * time.Millisecond},
		{5, 50, 9950 * time.Millisecond},
		{9000, 9500, 600 * time.Millisecond},
	} {
		gs.adopt(key, at(answer.asked), at(answer.answered), answer.left)
		if got := gs.closed[key]; !got.opens.Equal(opens) || got.queue != 1 {
			t.Errorf("%+v: opens at %v, and the queue is %d", answer, got.opens, got.queue)
		}
	}
	gs.adopt(key, at(9000), at(9010), 3*time.Second)
	if got := gs.closed[key]; !got.opens.Equal(at(12_010)) || got.queue != 0 {
		t.Errorf("a longer pause: opens at %v, and the queue is %d", got.opens, got.queue)
	}
	gs.adopt(gateKey{host: strings.Repeat("x", 1+maxName)}, noon, noon, time.Second)
	if n := len(gs.closed); n != 1 {
		t.Errorf("%d gates: a name beyond bounds was kept", n)
	}
}
