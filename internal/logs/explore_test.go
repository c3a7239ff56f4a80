package logs_test

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/internal/explore/steps"
	"github.com/stint-go/stint/internal/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/explore/steps/time"
)

// explored is a Log that is explored.
type explored interface {
	// Say writes the message of a name.
	Say(name string)
	// Kept is how many messages are still to be written.
	Kept() int
}

type handler = slog.Handler

var variants = map[string]func(handler) explored{}

const exploredFile = `package logs

import (
	"context"
	"log/slog"
)

type Explored struct{ *Log }

func Explore(h slog.Handler) Explored { return Explored{New(slog.New(h), false)} }

var named = map[string]Message{
	"fails": StoreFailed, "answers": StoreAnswers,
	"bad": PolicyRejected, "good": PolicyInForce,
	"banned": Banned,
}

func (x Explored) Say(name string) {
	x.Log.Say(context.Background(), named[name], name, func(bool) []slog.Attr { return nil })
}

func (x Explored) Kept() (n int) {
	for _, k := range x.kept {
		if k != nil {
			n++
		}
	}
	return n
}
`

// about is the subject whose state a message reports.
var about = map[string]string{
	"fails": "store", "answers": "store",
	"bad": "policy", "good": "policy",
}

// repeated are the messages that are repeated while their state lasts.
var repeated = map[string]bool{"fails": true}

// begins is the message whose state another message ends.
var begins = map[string]string{"answers": "fails"}

// journal is where lines come to, in their order.
type journal struct {
	slog.Handler
	*steps.Run
	lines []entry
	said  []saying
}

type entry struct {
	message    string
	at         time.Time
	suppressed int
}

// saying is a call.
type saying struct {
	message string
	steps.Span
}

func (j *journal) Enabled(context.Context, slog.Level) bool { return true }

func (j *journal) Handle(_ context.Context, r slog.Record) error {
	e := entry{message: strings.TrimPrefix(r.Message, "stint: "), at: r.Time}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "suppressed" {
			e.suppressed = int(a.Value.Int64())
		}
		return true
	})
	steps.At(steps.Store, unsafe.Pointer(j))
	steps.Note("writes %+v", e)
	j.lines = append(j.lines, e)
	return nil
}

// scene holds the messages that goroutines log at once.
type scene []string

func (s scene) String() string { return strings.Join(s, " | ") }

func (s scene) scenario(newLog func(handler) explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		j := &journal{Run: r}
		log := newLog(j)
		for i, says := range s {
			r.Go(string(rune('A'+i)), func() {
				for what := range strings.SplitSeq(says, "; ") {
					switch what {
					case "pass": // some time, but not a minute
						r.Advance(20 * time.Second)
					case "minute":
						lang.Receive(twin.After(time.Minute))
					default:
						span := r.Call("says "+what, func() { log.Say(what) })
						j.said = append(j.said, saying{what, span})
					}
				}
			})
		}
		r.End(func() {
			if n := log.Kept(); n > 0 {
				r.Broken("%d messages are still to be written", n)
			}
			j.check()
		})
	}
}

func (j *journal) check() {
	last := map[string]entry{}
	newest := map[string]string{}
	times := map[string][]time.Time{}
	for _, e := range j.lines {
		state := about[e.message]
		repeats := state == "" || repeated[e.message] && newest[state] == e.message
		if before, written := last[e.message]; written && repeats && e.at.Sub(before.at).Abs() < time.Minute {
			j.Broken("%q is written at %v and %v", e.message, before.at, e.at)
		}
		last[e.message] = e
		if state != "" {
			times[state] = append(times[state], e.at)
		}
		if begun := begins[e.message]; begun != "" && newest[about[e.message]] != begun {
			j.Broken("%q comes after %q", e.message, newest[about[e.message]])
		}
		newest[about[e.message]] = e.message
	}
	for state, at := range times {
		slices.SortFunc(at, time.Time.Compare)
		for i := range max(0, len(at)-3) {
			if at[i+3].Sub(at[i]) < time.Minute {
				j.Broken("four lines about the %s from %v to %v", state, at[i], at[i+3])
			}
		}
	}
	for state, message := range newest {
		if state != "" {
			j.checkLast(state, message)
		}
	}
}

// checkLast checks that the last line about a state can have been said last, and accounts
// for all that were said like it.
func (j *journal) checkLast(state, message string) {
	latest := func(a saying) bool {
		return a.message == message && !slices.ContainsFunc(j.said, func(b saying) bool {
			return about[b.message] == state && b.message != message && !repeated[b.message] && b.Began > a.Ended
		})
	}
	if !slices.ContainsFunc(j.said, latest) {
		j.Broken("the last line about the %s is %q, and something else was said later", state, message)
	}
	counted := cmp.Or(begins[message], message) // by what is suppressed
	said, accounted := 0, 0
	for _, s := range j.said {
		if s.message == counted {
			said++
		}
	}
	for _, e := range j.lines {
		if e.message == counted {
			accounted++
		}
		if cmp.Or(begins[e.message], e.message) == counted {
			accounted += e.suppressed
		}
	}
	if accounted > said || state == "policy" && accounted != said {
		j.Broken("lines account for %d of %q, which was said %d times", accounted, counted, said)
	}
}

// However many goroutines say something at once: no message is written twice in a minute, unless
// it changes a state, of which there are at most three lines a minute;
// what says that something is over comes after that, and once; and when all is said, the
// last line says how it is, and how often it was said.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/logs",
			Added:   map[string]string{"explored.go": exploredFile},
			Mutants: mutants,
			Entry:   "func(h handler) explored { return V.Explore(h) }",
		}).Run(t)
		return
	}
	steps.Explore(t, mutants, scenes, func(variant string, s scene) func(*steps.Run) {
		return s.scenario(variants[variant])
	})
}

var scenes = []scene{
	{"banned; banned; minute", "banned; minute; banned"},
	{"bad; minute", "good; minute"},
	{"bad; good; bad; minute; minute", "good"},
	{"good; good; good; good; minute; bad; minute; minute"},
	{"good; good; good; good; minute; good; minute; minute"},
	{"bad; good; bad; good; bad; minute; minute"},
	{"good; bad; minute; minute", "good; bad"},
	{"fails; answers; fails; minute", "answers; minute"},
	{"fails; minute", "fails; answers"},
	{"fails; pass; answers; pass; pass; fails; answers; fails; answers; minute"},
	{"fails; answers; fails; answers; pass; fails; minute; minute"},
	{"fails; answers; fails; answers; fails; answers; minute"},
}

var mutants = []steps.Variant{
	{Name: "a message is written whenever it comes", Edits: []steps.Edit{{File: "logs.go",
		Was: "of.next, of.open = now.Add(Interval), true", Is: "of.open = true"}}},
	{Name: "a state has four lines a minute", Edits: []steps.Edit{{File: "logs.go",
		Was: "const changes = 3", Is: "const changes = 4"}}},
	{Name: "lines are written by whoever is first", Edits: []steps.Edit{{File: "logs.go",
		Was: "for !l.writing && len(l.due) > 0 {", Is: "for len(l.due) > 0 {"}}},
	{Name: "who waits for the minute doesn't look whether something newer came", Edits: []steps.Edit{{File: "logs.go",
		Was: "	if l.kept[said[p.message].state] == p {\n", Is: "	if true {\n"}}},
	{Name: "nothing is kept", Edits: []steps.Edit{{File: "logs.go",
		Was: "		l.keep(p)\n", Is: ""}}},
	{Name: "what ends is said to end again", Edits: []steps.Edit{{File: "logs.go",
		Was: "		l.lines[s.ends].open = false\n", Is: ""}}},
	{Name: "what is superseded has ended all the same", Edits: []steps.Edit{{File: "logs.go",
		Was: "		l.lines[begun].open = true\n", Is: "		_ = begun\n"}}},
	{Name: "a kept message counts itself among the suppressed", Edits: []steps.Edit{{File: "logs.go",
		Was: "		l.lines[p.message].suppressed-- // p itself\n", Is: ""}}},
}
