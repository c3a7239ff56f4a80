package serve

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint/internal/test/redistest"
)

// fleet is two replicas on one Redis, as a load balancer sees them: a request goes to one of two places, and to
// the other one if it finds the first killed.
type fleet struct {
	t      *testing.T
	server *redistest.Server
	policy string
	places [2]atomic.Pointer[member]
}

// member is a replica of a fleet.
type member struct {
	*process
	rls service.RateLimitServiceClient
	// killed and retired say that a request may fail there: because its process was killed, or because it has
	// accepted no more connections.
	killed, retired atomic.Bool
	asked           atomic.Int64 // requests without an answer
}

// begin starts a replica.
func (f *fleet) begin() *member {
	f.t.Helper()
	m := &member{process: startReplica(f.t, f.server, f.policy, replicaFor+"=proxies")}
	conn, err := grpc.NewClient(m.addresses[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	m.rls = service.NewRateLimitServiceClient(conn)
	return m
}

// hold pauses Redis until all callers wait for an answer.
func (f *fleet) hold() {
	f.t.Helper()
	f.server.Pause()
	eventually(f.t, "all callers wait", func() bool {
		return f.places[0].Load().asked.Load()+f.places[1].Load().asked.Load() == 2*callers
	})
}

// restart replaces the replica in a place by a new one, while it has requests in flight, which it answers.
func (f *fleet) restart(place int) {
	f.t.Helper()
	m := f.begin()
	f.hold()
	old := f.places[place].Swap(m)
	old.retired.Store(true)
	stopped := make(chan error, 1)
	go func() { stopped <- old.stop() }()
	for _, address := range old.addresses {
		eventually(f.t, "no more connections are accepted", func() bool {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
	}
	f.t.Logf("restarted with %d requests in flight", old.asked.Load())
	f.server.Resume()
	if err := <-stopped; err != nil {
		f.t.Errorf("a replica that is stopped: %v", err)
	}
}

// kill kills the replica in a place, while it has requests in flight.
func (f *fleet) kill(place int) {
	f.t.Helper()
	f.hold()
	m := f.places[place].Load()
	m.killed.Store(true)
	m.kill()
	if err := m.stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		f.t.Errorf("the replica to be killed has ended by itself: %v", err)
	}
	f.server.Resume()
}

// send sends request i until it is decided. It returns lost if the replica was killed meanwhile.
func (f *fleet) send(i int64, send func(m *member) (admitted bool, err error)) (admitted, lost bool) {
	for ; ; i++ {
		m := f.places[i%2].Load()
		if m.killed.Load() {
			continue
		}
		m.asked.Add(1)
		admitted, err := send(m)
		m.asked.Add(-1)
		switch {
		case err == nil:
			return admitted, false
		case m.killed.Load():
			return false, true
		case !m.retired.Load(): // a retired replica hasn't decided what it didn't answer
			f.t.Errorf("request %d: %v", i, err)
			return false, true
		}
	}
}

// traffic sends requests until its end is known: perKey of each key, by several callers.
type traffic struct {
	next, end, decided atomic.Int64
	mu                 sync.Mutex
	admitted, lost     map[int64]int64 // by key
	callers            sync.WaitGroup
}

const perKey, callers = 40, 4

func (l *traffic) run(f *fleet, ask func(m *member, key int64) (admitted bool, err error)) {
	l.end.Store(math.MaxInt64)
	l.admitted, l.lost = map[int64]int64{}, map[int64]int64{}
	for range callers {
		l.callers.Go(func() {
			for {
				i := l.next.Add(1) - 1
				if i >= l.end.Load() {
					return
				}
				key := i / perKey
				admitted, lost := f.send(i, func(m *member) (bool, error) { return ask(m, key) })
				l.mu.Lock()
				if lost {
					l.lost[key]++
				} else if admitted {
					l.admitted[key]++
				}
				l.mu.Unlock()
				l.decided.Add(1)
			}
		})
	}
}

// Two replicas on one Redis share counts exactly under load, while one is killed and both are then replaced one
// after the other. Only the decisions in flight at the kill are lost: each key passes exactly as often as its limit
// says, but for those.
func TestReplicasUnderLoad(t *testing.T) {
	const limit = 20
	policies := t.TempDir()
	for name, text := range map[string]string{
		"web.yaml":  "version: 1\nkey: remote-ip\nlimits: [{name: web, quota: 20/yearly}]\n",
		"shop.yaml": "version: 1\ndomain: shop\nlimits: [{name: shop, quota: 20/yearly, key: {descriptor: [user]}}]\n",
	} {
		if err := os.WriteFile(filepath.Join(policies, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &fleet{t: t, server: redistest.Start(t), policy: policies}
	f.places[0].Store(f.begin())
	f.places[1].Store(f.begin())
	loads := map[string]*traffic{"forward auth": {}, "rate limit service": {}}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	t.Cleanup(client.CloseIdleConnections)
	loads["forward auth"].run(f, func(m *member, key int64) (bool, error) {
		c := get("/a")
		c.address = fmt.Sprintf("2001:db8:%x:%x::1", key>>16, key&0xffff)
		r := c.forwarded(t, "nginx", "")
		r.Method = http.MethodPost // which the client doesn't send again by itself
		r.URL.Host, r.RequestURI, r.RemoteAddr = m.addresses[0], "", ""
		resp, err := client.Do(r)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 && resp.Header.Get("X-Stint-Status") != "429" {
			t.Errorf("forward auth answers %d", resp.StatusCode)
		}
		return resp.StatusCode == 200, nil
	})
	loads["rate limit service"].run(f, func(m *member, key int64) (bool, error) {
		resp, err := m.rls.ShouldRateLimit(context.Background(), limitRequest("shop", 1, described(fmt.Sprint("user=", key))))
		return resp.GetOverallCode() == service.RateLimitResponse_OK, err
	})
	// goOn waits until every caller has gone on for a while.
	goOn := func() {
		for name, l := range loads {
			before := l.decided.Load()
			eventually(t, name+": requests are decided", func() bool { return l.decided.Load() >= before+10*perKey })
		}
	}
	goOn()
	f.kill(0)
	goOn()
	f.places[0].Store(f.begin())
	goOn()
	for place := range f.places {
		f.restart(place)
		goOn()
	}
	for name, l := range loads {
		keys := l.next.Load()/perKey + 1
		l.end.Store(keys * perKey)
		l.callers.Wait()
		var lost int64
		for key := range keys {
			lost += l.lost[key]
			if got := l.admitted[key]; got > limit || got < limit-l.lost[key] {
				t.Errorf("%s: key %d passed %d times, and %d requests were lost, of %d", name, key, got, l.lost[key], limit)
			}
		}
		t.Logf("%s: %d keys, %d requests in flight at the kill", name, keys, lost)
		if lost > callers {
			t.Errorf("%s: %d requests were lost by %d callers", name, lost, callers)
		}
	}
}
