// Package numbers runs what documents say in words and numbers about limits, such as "5 pass, 1
// denied; after 1 s 5 pass".
package numbers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
)

// Row is a line of a document: the options of a limiter, in code, and what it does with the
// requests of one client.
type Row struct {
	Code    string
	Options []stint.Option // keyed by RemoteIP, unless they have a key
	Does    string
}

// Test reports the rows whose limits do something else.
func Test(t *testing.T, rows []Row) {
	for _, r := range rows {
		t.Run(r.Code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, wrong := range Wrong(r) {
					t.Errorf("%s: %s", r.Does, wrong)
				}
			})
		})
	}
}

// The words of a row. Requests of one clause come at the same instant, in order.
var (
	eachTakes = regexp.MustCompile(`^each takes ([0-9.]+ \w+): `)
	after     = regexp.MustCompile(`^after ([0-9.]+ \w+) `)          // since the clause before
	oneCaller = regexp.MustCompile(`^one caller waits ([0-9. ]+) s`) // by Limiter.Wait, one after the other
	waits     = regexp.MustCompile(`^waits ([0-9. ]+) s`)
	allWait   = regexp.MustCompile(`^([0-9]+) waits? ([0-9.]+) s`)
	pass      = regexp.MustCompile(`^([0-9]+) pass(?:es)?`)
	denied    = regexp.MustCompile(`^([0-9]+) denied`)
	bytesTake = regexp.MustCompile(`^([0-9,]+) bytes take ([0-9.]+) s`)
	status    = regexp.MustCompile(`^status ([0-9]+)`)          // of the request before
	field     = regexp.MustCompile("^`([\\w-]+): ([^`]+)`")     // of the request before
	between   = regexp.MustCompile(`^(?:, |; | with | and |$)`) // items
)

// precision is how exactly documents give seconds.
const precision = 5 * time.Millisecond

// request is a request and what is expected of it: by default, that it is admitted at once.
type request struct {
	denied bool
	waits  time.Duration
	status int
	fields [][2]string
	bytes  int
	takes  time.Duration // to write the bytes

	began, admitted, ended time.Time
	response               *httptest.ResponseRecorder
}

// Wrong runs a row and returns how its limits differ. It is called in a bubble of synctest.
func Wrong(r Row) (wrong []string) {
	options := append([]stint.Option{stint.WithLogger(slog.New(slog.DiscardHandler))}, r.Options...)
	if !strings.Contains(r.Code, "WithKey(") {
		options = append(options, stint.WithKey(stint.RemoteIP()))
	}
	lim, err := stint.New(options...)
	if err != nil {
		return []string{err.Error()}
	}
	var (
		all      []*request
		running  sync.WaitGroup
		duration time.Duration
	)
	send := func(q request) {
		all = append(all, &q)
		running.Go(func() { q.serve(lim, duration) })
		synctest.Wait()
	}
	var m []string
	rest := r.Does
	next := func(item *regexp.Regexp) bool {
		if m = item.FindStringSubmatch(rest); m != nil {
			rest = rest[len(m[0]):]
		}
		return m != nil
	}
	for start := time.Now(); rest != ""; {
		if next(eachTakes) {
			duration = length(m[1])
		}
		if next(after) {
			time.Sleep(time.Until(start.Add(length(m[1]))))
			start = time.Now()
		}
		switch {
		case next(oneCaller):
			wrong = append(wrong, callInTurn(lim, strings.Fields(m[1]))...)
		case next(waits):
			for _, s := range strings.Fields(m[1]) {
				send(request{waits: length(s + " s")})
			}
		case next(allWait):
			for range number(m[1]) {
				send(request{waits: length(m[2] + " s")})
			}
		case next(pass):
			for range number(m[1]) {
				send(request{})
			}
		case next(denied):
			for range number(m[1]) {
				send(request{denied: true})
			}
		case next(bytesTake):
			send(request{bytes: number(m[1]), takes: length(m[2] + " s")})
		case len(all) > 0 && next(status):
			all[len(all)-1].status = number(m[1])
		case len(all) > 0 && next(field):
			q := all[len(all)-1]
			q.fields = append(q.fields, [2]string{m[1], m[2]})
		default:
			return append(wrong, fmt.Sprintf("no words for %q", rest))
		}
		if !next(between) {
			return append(wrong, fmt.Sprintf("no words for %q", rest))
		}
	}
	running.Wait()
	for i, q := range all {
		if s := q.wrong(); s != "" {
			wrong = append(wrong, fmt.Sprintf("request %d %s", i+1, s))
		}
	}
	return wrong
}

// serve sends the request through a limiter, to a handler that takes as long as duration.
func (q *request) serve(lim *stint.Limiter, duration time.Duration) {
	w := httptest.NewRecorder()
	q.began = time.Now()
	lim.Serve(w, httptest.NewRequest("GET", "/", nil), func(w http.ResponseWriter, _ *http.Request) {
		q.admitted = time.Now()
		time.Sleep(duration)
		_, _ = io.Copy(w, bytes.NewReader(make([]byte, q.bytes)))
	})
	q.ended, q.response = time.Now(), w
}

// wrong returns how the request differs from what is expected of it.
func (q *request) wrong() string {
	waited := q.admitted.Sub(q.began)
	switch {
	case q.admitted.IsZero() != q.denied && q.denied:
		return "passes"
	case q.admitted.IsZero() != q.denied:
		return "is denied"
	case !q.denied && !near(waited, q.waits):
		return fmt.Sprintf("waits %v", waited)
	case q.bytes > 0 && !near(q.ended.Sub(q.admitted), q.takes):
		return fmt.Sprintf("takes %v", q.ended.Sub(q.admitted))
	case q.status != 0 && q.status != q.response.Code:
		return fmt.Sprintf("has the status %d", q.response.Code)
	}
	for _, f := range q.fields {
		if got := q.response.Header().Get(f[0]); got != f[1] {
			return fmt.Sprintf("has %s: %s", f[0], got)
		}
	}
	return ""
}

// callInTurn has one caller wait for one unit after another.
func callInTurn(lim *stint.Limiter, want []string) (wrong []string) {
	for i, s := range want {
		start := time.Now()
		p, err := lim.Wait(context.Background(), "a key", 1)
		if err != nil {
			return append(wrong, err.Error())
		}
		p.Done()
		if waited := time.Since(start); !near(waited, length(s+" s")) {
			wrong = append(wrong, fmt.Sprintf("call %d waits %v", i+1, waited))
		}
	}
	return wrong
}

func near(a, b time.Duration) bool { return (a - b).Abs() <= precision }

// length is a duration of which a row has the number and the unit.
func length(text string) time.Duration {
	n, unit, _ := strings.Cut(text, " ")
	if strings.HasPrefix(n, ".") {
		n = "0" + n
	}
	d, err := time.ParseDuration(n + unit)
	if err != nil {
		return math.MaxInt64 // nothing is near it
	}
	return d
}

// number is a whole number, with or without commas. The expressions above let nothing else through.
func number(text string) int {
	n, _ := strconv.Atoi(strings.ReplaceAll(text, ",", ""))
	return n
}

// Printer stands for package fmt in the code of a document, and keeps what is printed.
type Printer struct{ printed strings.Builder }

// Println prints a line as fmt.Println does.
func (p *Printer) Println(a ...any) { fmt.Fprintln(&p.printed, a...) }

// Printed returns what was printed.
func (p *Printer) Printed() string { return p.printed.String() }
