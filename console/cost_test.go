//go:build unix

package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/console"
)

// TestMain is a server where BenchmarkCost starts this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("STINT_COST_SERVER") != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// kinds are the limiters that are compared: one without the page, another such, which
// shows how far to trust the figures, one with an observer that does nothing, and one
// with the page.
var kinds = []string{"bare", "again", "observed", "attached"}

// serve is a server with a limiter of each kind. It says where it listens, and ends with
// its standard input.
func serve() {
	mux := http.NewServeMux()
	for _, kind := range kinds {
		l := stint.Must(stint.New(stint.Rate(1_000_000, time.Second), stint.WithKey(stint.Header("X-Api-Key"))))
		switch kind {
		case "observed":
			l.Observe(func(stint.Event) {})
		case "attached":
			page, err := console.New(console.Limiters(l), console.WithToken("a token of sixteen bytes"))
			if err != nil {
				panic(err)
			}
			mux.Handle("/console/", page)
		}
		limit := stinthttp.Middleware(l)
		mux.Handle("/empty/"+kind, limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		mux.Handle("/json/"+kind, limit(http.HandlerFunc(sum)))
		mux.Handle("/html/"+kind, limit(http.HandlerFunc(list)))
	}
	mux.HandleFunc("/cpu", func(w http.ResponseWriter, _ *http.Request) {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		fmt.Fprintln(w, u.Utime.Nano()+u.Stime.Nano())
	})
	s := httptest.NewServer(mux)
	fmt.Println(s.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// order is the JSON that sum reads and answers.
type order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
	Items []item `json:"items"`
}

type item struct {
	Name  string `json:"name"`
	SKU   string `json:"sku"`
	Count int    `json:"count"`
	Price int    `json:"price"`
}

// body is an order of 1 KB.
func body() []byte {
	o := order{ID: "7f3a"}
	for i := range 16 {
		o.Items = append(o.Items, item{fmt.Sprint("item ", i), fmt.Sprint("sku-", i*i), i, 100 * i})
	}
	b, _ := json.Marshal(o)
	return b
}

func sum(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, i := range o.Items {
		o.Total += i.Count * i.Price
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

var listed = template.Must(template.New("").Parse(`<!doctype html><title>{{.ID}}</title><table>
{{range .Items}}<tr><th>{{.Name}}</th><td>{{.SKU}}</td><td>{{.Count}}</td><td>{{.Price}}</td></tr>
{{end}}</table>`))

func list(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_ = listed.Execute(w, o)
}

// server is a server in a process of its own, and connections to it.
type server struct {
	url   string
	conns []net.Conn
	stop  func()
}

// start starts a server with one processor. It is kept busy: of a server that isn't,
// much of the CPU time is looking for work.
func start(b *testing.B) *server {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "STINT_COST_SERVER=1", "GOMAXPROCS=1")
	c.Stderr = os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	s := &server{stop: func() { _ = stdin.Close(); _ = c.Wait() }}
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	s.url = strings.TrimSpace(url)
	for range 64 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			b.Fatal(err)
		}
		s.conns = append(s.conns, conn)
	}
	return s
}

// get returns what the server answers.
func (s *server) get(b *testing.B, path string) string {
	res, err := http.Get(s.url + path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(got))
}

// cpu is the CPU time that the server's process has used so far.
func (s *server) cpu(b *testing.B) time.Duration {
	ns, err := strconv.ParseInt(s.get(b, "/cpu"), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}

// load sends some requests on each connection, with keys of which some come often, and
// returns the CPU time of a request in ns.
func (s *server) load(b *testing.B, path string, body []byte) float64 {
	const each = 16
	before := s.cpu(b)
	var all sync.WaitGroup
	for k, conn := range s.conns {
		all.Go(func() {
			var question bytes.Buffer
			var answer [8192]byte
			for i := range each {
				question.Reset()
				fmt.Fprintf(&question, "POST %s HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: %d\r\nContent-Length: %d\r\n\r\n%s", path, (i*i+k*k)%997, len(body), body)
				if _, err := conn.Write(question.Bytes()); err != nil {
					b.Error(err)
					return
				}
				if _, err := conn.Read(answer[:]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(s.cpu(b)-before) / float64(each*len(s.conns))
}

// middle is the mean of the half of all that lies in the middle.
func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	all = all[len(all)/4 : len(all)-len(all)/4]
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(len(all))
}

// What the page costs a server under load, in CPU time of the server's process. The
// limiters of one server, which differ in nothing else, are asked in turn, and what each
// takes is compared with the bare one of the same turn. That is done with new processes
// again and again, since no two lie in memory alike. The handler does nothing, or reads
// 1 KB of JSON and writes it again, or writes HTML of it. Last, a browser shows the
// page: that is a share of one processor, however many look, and whatever the load.
//
//	go test -run '^$' -bench Cost -benchtime 20s ./console
func BenchmarkCost(b *testing.B) {
	for _, load := range []struct {
		name string
		body []byte
	}{{"empty", nil}, {"json", body()}, {"html", body()}} {
		b.Run(load.name, func(b *testing.B) {
			more := make([][]float64, len(kinds)) // than the bare one, which is in more[0]
			var viewed []float64
			for b.Loop() {
				viewed = append(viewed, compare(b, more, "/"+load.name, load.body))
			}
			bare := middle(more[0])
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bare, "bare-ns")
			for i, kind := range kinds[1:] {
				n := middle(more[i+1])
				b.ReportMetric(n, kind+"-ns")
				b.ReportMetric(100*n/bare, kind+"-%")
			}
			b.ReportMetric(middle(viewed), "viewed-%-of-a-core")
		})
	}
}

// compare starts a server, adds to more what requests of each kind take, and returns what
// a viewer costs.
func compare(b *testing.B, more [][]float64, path string, body []byte) float64 {
	s := start(b)
	defer s.stop()
	for _, kind := range kinds {
		for range 12 { // the first 10,000 requests of a limiter are looked at for mistakes
			s.load(b, "/empty/"+kind, nil)
		}
		s.load(b, path+"/"+kind, body)
	}
	for turn, end := 0, time.Now().Add(5*time.Second); time.Now().Before(end); turn++ {
		took := make([]float64, len(kinds))
		for i := range kinds {
			i = (i + turn) % len(kinds)
			took[i] = s.load(b, path+"/"+kinds[i], body)
		}
		more[0] = append(more[0], took[0])
		for i := range kinds[1:] {
			more[i+1] = append(more[i+1], took[i+1]-took[0])
		}
	}
	return view(b, s)
}

// view looks at the page for a while, and returns the share of a processor that the
// server uses for that in percent.
func view(b *testing.B, s *server) float64 {
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "GET", s.url+"/console/events", nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer a token of sixteen bytes")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}()
	const seconds = 1
	before := s.cpu(b)
	time.Sleep(seconds * time.Second) // of a real server, whose processor time is read before and after
	return 100 * (s.cpu(b) - before).Seconds() / seconds
}
