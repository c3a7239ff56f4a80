package storetest

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/store"
)

// A trace is a text of calls and answers, one per line. Text after # is a comment.
// Words are separated by spaces.
//
//	limit NAME ALGORITHM UNITS/PERIOD option…
//	    declares a limit, or changes its numbers from here on. PERIOD is a
//	    duration, or hourly, daily, weekly, monthly, every:DURATION; Concurrency
//	    has none. Options are burst=N, queue=N, debt, warmup=DURATION,
//	    buckets=N. The word none stands for store.None.
//	align NAME
//	    sleeps until a window or bucket of the limit begins, and counts the
//	    times below from there.
//	TIME take NAME:KEY COST option… = ANSWER
//	    makes a charge. TIME counts from the start or, after a +, from the
//	    last call. Options are wait DURATION and dry. Several charges of one
//	    call are joined by &, and so are their answers.
//	TIME LABEL: take …
//	    also keeps the first charge's receipt.
//	TIME settle LABEL COST = ANSWER
//	    settles that charge, and keeps the new receipt.
//	TIME run N*M every DURATION take … = COUNT pass
//	    makes the same call M times at each of N instants, and counts the
//	    granted ones.
//
// An ANSWER is ok or no, followed by left N, reset DURATION, delay DURATION and retry
// DURATION (or never). If delay and retry are missing, they must be 0; if left and
// reset are missing, they aren't checked.

//go:embed testdata/*.trace
var traces embed.FS

func traceRows() []row {
	names, err := fs.Glob(traces, "testdata/*.trace")
	if err != nil {
		panic(err)
	}
	var rows []row
	for _, name := range names {
		text, err := traces.ReadFile(name)
		if err != nil {
			panic(err)
		}
		short := strings.TrimSuffix(strings.TrimPrefix(name, "testdata/"), ".trace")
		rows = append(rows, row{short, func(s *suite) { replay(s, short, string(text)) }})
	}
	return rows
}

// player replays a trace.
type player struct {
	*suite
	limits map[string]*store.Limit
	kept   map[string]store.Charge
	at     time.Duration // since the start, or since align
	words  []string
}

func replay(s *suite, name, text string) {
	p := &player{suite: s, limits: map[string]*store.Limit{}, kept: map[string]store.Charge{}}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if p.words = strings.Fields(line); len(p.words) == 0 {
			continue
		}
		if err := p.line(); err != nil {
			s.Errorf("%s.trace:%d: %s\n\t%v", name, i+1, strings.TrimSpace(line), err)
		}
		if s.Failed() { // later lines depend on this one
			return
		}
	}
}

// next returns the next word, or "" at the end.
func (p *player) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *player) line() error {
	switch w := p.next(); w {
	case "limit":
		return p.declare()
	case "align":
		l := p.limits[p.next()]
		if l == nil {
			return fmt.Errorf("no such limit: declare it by a line \"limit\" above")
		}
		p.sleep(p.take("align", l, 1).ResetAfter)
		p.at = 0
		return nil
	default:
		if err := p.advance(w); err != nil {
			return err
		}
		return p.call()
	}
}

func (p *player) advance(word string) error {
	from := time.Duration(0)
	word, relative := strings.CutPrefix(word, "+")
	if relative {
		from = p.at
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		return err
	}
	if from+d < p.at {
		return fmt.Errorf("%v is in the past: the time is %v", d, p.at)
	}
	p.sleep(from + d - p.at)
	p.at = from + d
	return nil
}

func (p *player) declare() error {
	name := p.next()
	s := store.Spec{Name: "st" + name}
	var err error
	if s.Algorithm, err = algorithm(p.next()); err != nil {
		return err
	}
	units, span, _ := strings.Cut(p.next(), "/")
	if s.Units, err = strconv.ParseInt(units, 10, 64); err != nil {
		return err
	}
	if err = setSpan(&s, span); err != nil {
		return err
	}
	for option := p.next(); option != ""; option = p.next() {
		if err = setOption(&s, option); err != nil {
			return err
		}
	}
	p.limits[name], err = store.NewLimit(s)
	return err
}

// setSpan sets the Period or the Window of a Spec, if the trace gives one.
func setSpan(s *store.Spec, span string) error {
	windows := map[string]store.Window{"hourly": store.Hourly, "daily": store.Daily, "weekly": store.Weekly,
		"monthly": store.Monthly}
	if w, named := windows[span]; named || span == "" {
		s.Window = w
		return nil
	}
	length, every := strings.CutPrefix(span, "every:")
	d, err := time.ParseDuration(length)
	if every {
		s.Window = store.Every(d)
	} else {
		s.Period = d
	}
	return err
}

// setOption sets another field of a Spec: "burst=5", "queue=none", "debt", "warmup=1s".
func setOption(s *store.Spec, option string) (err error) {
	number := func(text string) int64 {
		if text == "none" {
			return store.None
		}
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		return n
	}
	switch key, value, _ := strings.Cut(option, "="); key {
	case "burst":
		s.Burst = number(value)
	case "queue":
		s.Queue = number(value)
	case "buckets":
		s.Buckets = number(value)
	case "debt":
		s.Debt = true
	case "warmup":
		s.WarmUp, err = time.ParseDuration(value)
	default:
		err = fmt.Errorf("unknown option %q", option)
	}
	return err
}

func algorithm(name string) (store.Algorithm, error) {
	for a := range algorithms {
		if a.String() == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("no algorithm %q", name)
}

// algorithms yields all algorithms of package store.
func algorithms(yield func(store.Algorithm) bool) {
	for a := store.Algorithm(0); !strings.HasPrefix(a.String(), "Algorithm(") && yield(a); a++ {
	}
}

func (p *player) call() error {
	verb := p.next()
	label, labelled := strings.CutSuffix(verb, ":")
	if labelled {
		verb = p.next()
	}
	switch verb {
	case "take":
		charges, err := p.charges()
		if err != nil {
			return err
		}
		results, _ := p.decide(charges...)
		if labelled {
			p.kept[label] = charges[0]
			p.keep(label, results[0].Receipt)
		}
		return p.compare(results)
	case "settle":
		label := p.next()
		c, found := p.kept[label]
		if !found {
			return fmt.Errorf("no receipt %q: write \"TIME LABEL: take\" above", label)
		}
		cost, err := strconv.ParseInt(p.next(), 10, 64)
		if err != nil {
			return err
		}
		if p.next() != "=" {
			return fmt.Errorf("missing =: write = and the answers")
		}
		for _, l := range p.limits {
			if l.Name() == c.Limit.Name() {
				c.Limit = l // with the numbers it has now
			}
		}
		r := p.suite.settle(c.Key, c.Limit, c.Receipt, cost)
		p.keep(label, r.Receipt)
		return p.compare([]store.Result{r})
	case "run":
		return p.repeat()
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
}

func (p *player) keep(label string, r store.Receipt) {
	c := p.kept[label]
	c.Receipt = r
	p.kept[label] = c
}

// charges reads the charges of a call, up to the =.
func (p *player) charges() ([]store.Charge, error) {
	var charges []store.Charge
	for {
		name, key, _ := strings.Cut(p.next(), ":")
		c := store.Charge{Key: key, Limit: p.limits[name]}
		if c.Limit == nil {
			return nil, fmt.Errorf("no limit %q", name)
		}
		var err error
		if c.Cost, err = strconv.ParseInt(p.next(), 10, 64); err != nil {
			return nil, err
		}
		w := p.next()
		for ; w != "&" && w != "="; w = p.next() {
			switch w {
			case "wait":
				if c.MaxWait, err = time.ParseDuration(p.next()); err != nil {
					return nil, err
				}
			case "dry":
				c.DryRun = true
			default:
				return nil, fmt.Errorf("unknown option %q of a charge", w)
			}
		}
		charges = append(charges, c)
		if w == "=" {
			return charges, nil
		}
	}
}

func (p *player) repeat() error {
	var n, m int
	if _, err := fmt.Sscanf(p.next(), "%d*%d", &n, &m); err != nil {
		return err
	}
	if p.next() != "every" {
		return fmt.Errorf("missing every: write run N*M every DURATION")
	}
	every, err := time.ParseDuration(p.next())
	if err != nil {
		return err
	}
	if p.next() != "take" {
		return fmt.Errorf("run takes no other verb than take")
	}
	charges, err := p.charges()
	if err != nil {
		return err
	}
	passed := 0
	for i := range n {
		if i > 0 {
			p.sleep(every)
			p.at += every
		}
		for range m {
			if _, granted := p.decide(charges...); granted {
				passed++
			}
		}
	}
	if want := p.next(); strconv.Itoa(passed) != want || p.next() != "pass" {
		return fmt.Errorf("%d passed, want %s", passed, want)
	}
	return nil
}

// compare reads the expected answers and compares them with the results.
func (p *player) compare(results []store.Result) error {
	for i, got := range results {
		want := got
		want.Delay, want.RetryAfter = 0, 0
		for w := p.next(); w != "" && w != "&"; w = p.next() {
			var err error
			switch w {
			case "ok":
				want.OK = true
			case "no":
				want.OK = false
			case "left":
				want.Remaining, err = strconv.ParseInt(p.next(), 10, 64)
			case "reset":
				want.ResetAfter, err = time.ParseDuration(p.next())
			case "delay":
				want.Delay, err = time.ParseDuration(p.next())
			case "retry":
				if w := p.next(); w == "never" {
					want.RetryAfter = store.Never
				} else {
					want.RetryAfter, err = time.ParseDuration(w)
				}
			default:
				err = fmt.Errorf("unknown answer %q", w)
			}
			if err != nil {
				return err
			}
		}
		if got != want {
			return fmt.Errorf("answer %d at %v: %s, want %s", i+1, p.at, show(got), show(want))
		}
	}
	return nil
}

// show formats a result as in a trace.
func show(r store.Result) string {
	ok := "no"
	if r.OK {
		ok = "ok"
	}
	return fmt.Sprintf("%s left %d reset %v delay %v retry %s more %v", ok, r.Remaining, r.ResetAfter, r.Delay,
		wait(r.RetryAfter), r.MoreAfter)
}

func wait(d time.Duration) string {
	if d == store.Never {
		return "never"
	}
	return d.String()
}
