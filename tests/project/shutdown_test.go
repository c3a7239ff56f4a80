package project

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

// patient makes stores that wait for Redis as long as a slow machine takes. Others would decide in memory meanwhile.
type patient struct{}

func (patient) New(rdb redis.UniversalClient) *redisstore.Store {
	return redisstore.New(rdb, redisstore.WithTimeout(time.Minute))
}

// The recipe "Shutting down, with open streams" ends streams, answers the requests in flight, and gives
// waiting ones their turn.
func TestShuttingDown(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	mux := http.NewServeMux()
	events := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, _ = io.WriteString(w, "data: the end\n")
	}
	started, finish := make(chan struct{}, 2), make(chan struct{})
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		select {
		case <-finish:
			_, _ = io.WriteString(w, "report")
		case <-r.Context().Done():
			http.Error(w, r.Context().Err().Error(), http.StatusInternalServerError)
		}
	})

	redisstore := patient{}
	shared := redisstore.New(rdb)
	store := failover.New(shared, memstore.New())
	lim := stint.Must(stint.New(
		stint.Concurrency(2, stint.WithQueue(10), stint.WithName("slots")),
		stint.WithKey(stint.RemoteIP()),
		stint.WithStore(store)))

	closing, endStreams := context.WithCancel(context.Background())
	server := &http.Server{Handler: stinthttp.Middleware(lim)(mux)}
	server.RegisterOnShutdown(endStreams)

	stream := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			ctx, end := context.WithCancel(r.Context())
			defer end()
			defer context.AfterFunc(closing, end)()
			next(w, r.WithContext(ctx)) // returns when its context ends
		}
	}
	mux.HandleFunc("GET /events", stream(events))

	shutDown := func(ctx context.Context) error {
		return errors.Join(
			server.Shutdown(ctx), // handlers return and release their slots
			store.Close(),        // ends the probes
			shared.Close(),       // releases slots that are still held, and returns prefetched tokens
			rdb.Close())
	}

	waiting := make(chan struct{}, 1)
	defer lim.Observe(func(e stint.Event) {
		if e.Kind == stint.EventWaiting {
			waiting <- struct{}{}
		}
	})()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer server.Close()
	open, err := http.Get("http://" + l.Addr().String() + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	lines := bufio.NewReader(open.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}
	reports := make(chan string, 2)
	report := func() {
		resp, err := http.Get("http://" + l.Addr().String() + "/report")
		if err != nil {
			reports <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		reports <- resp.Status + " " + string(text)
	}
	go report()
	<-started
	go report()
	<-waiting

	down := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		down <- shutDown(ctx)
	}()
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "data: the end\n" {
		t.Errorf("the stream ends with %q, %v", rest, err)
	}
	select {
	case <-started: // the waiting request has the stream's slot
	case got := <-reports:
		t.Errorf("a report that can't be ready: %s", got)
	}
	close(finish)
	for range 2 {
		if got := <-reports; got != "200 OK report" {
			t.Errorf("a report: %s", got)
		}
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// indent indents code by a tab.
func indent(code string) string {
	lines := strings.SplitAfter(code, "\n")
	for i, line := range lines {
		if strings.TrimSpace(line) != "" {
			lines[i] = "\t" + line
		}
	}
	return strings.Join(lines, "")
}
