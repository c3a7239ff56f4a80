package limit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/explore/steps"
	"github.com/stint-go/stint/internal/explore/steps/lang"
	twin "github.com/stint-go/stint/internal/explore/steps/time"
)

// explored are the Denials of two limits that are explored.
type explored interface {
	// Deny and Pass add a key of a limit. Deny returns what is found.
	Deny(limit, key int) (denied, keys int, found bool)
	Pass(limit, key int)
	// Looks is how many looks there are, and how many the limits have.
	Looks() (all, own int)
	// Rests reports whether a limit rests.
	Rests(limit int) bool
}

var variants = map[string]func() explored{}

const exploredFile = `package limit

import "fmt"

type Explored struct{ of [2]Denials }

func Explore() *Explored {
	looks.all = nil
	looks.n.Store(0)
	return new(Explored)
}

// key returns a key whose bit is the i-th.
func key(i int) string {
	for n := 0; ; n++ {
		if k := fmt.Sprint(n); hash(k)%64 == uint64(i) {
			return k
		}
	}
}

var keys = [...]string{key(0), key(1), key(2), key(3)}

func (x *Explored) Deny(limit, key int) (denied, all int, found bool) {
	if s := x.of[limit].Deny(keys[key]); s != nil {
		return s.Denied, s.Keys, true
	}
	return 0, 0, false
}

func (x *Explored) Pass(limit, key int) {
	if Looking() {
		x.of[limit].See(keys[key], false)
	}
}

func (x *Explored) Looks() (all, own int) {
	for i := range x.of {
		if x.of[i].look.Load() != nil {
			own++
		}
	}
	if len(looks.all) > 0 != Looking() {
		panic("looking, or not")
	}
	return len(looks.all), own
}

func (x *Explored) Rests(limit int) bool { return x.of[limit].few.Load() == resting }
`

// small makes few keys many: two denied begin a look, two are judged by, one limit looks at a time.
var small = []steps.Edit{
	{File: "denials.go", Was: "enough = 80", Is: "enough = 2"},
	{File: "denials.go", Was: "fewestKeys = 100", Is: "fewestKeys = 2"},
	{File: "denials.go", Was: "mostLooks = 32", Is: "mostLooks = 1"},
	{File: "denials.go", Was: "levels = 16", Is: "levels = 1"},
	{File: "denials.go", Was: "words  = 64", Is: "words = 1"},
	{File: "denials.go", Was: "bits  [16]atomic.Uint64", Is: "bits [1]atomic.Uint64"},
}

// scene has what goroutines do at once: "-0" denies key 0 of the first limit, "+0" lets it pass,
// and those with a ' are of the second.
type scene []string

func (s scene) String() string { return strings.Join(s, " | ") }

func (s scene) scenario(begin func() explored) func(*steps.Run) {
	return func(r *steps.Run) {
		r.Freeze()
		x := begin()
		var found [2]int
		for i, does := range s {
			r.Go(string(rune('A'+i)), func() {
				for what := range strings.FieldsSeq(does) {
					limit := strings.Count(what, "'")
					switch what[0] {
					case '-':
						if denied, keys, is := x.Deny(limit, int(what[1]-'0')); is {
							found[limit]++
							if denied > keys || keys > 4 {
								r.Broken("%d of %d keys", denied, keys)
							}
						}
					case '+':
						x.Pass(limit, int(what[1]-'0'))
					case 'h':
						lang.Receive(twin.After(time.Hour))
					case 'd':
						lang.Receive(twin.After(25 * time.Hour))
					}
				}
			})
		}
		r.End(func() {
			if all, own := x.Looks(); all+own > 0 {
				r.Broken("%d looks are left, %d of the limits", all, own)
			}
			for i, n := range found {
				if n > 1 {
					r.Broken("found %d times", n)
				}
				if x.Rests(i) {
					r.Broken("limit %d rests for ever", i)
				}
			}
		})
	}
}

// However requests cross that a limit denies and lets pass, and hours that end: a look ends, and
// leaves nothing behind; a limit that has found nothing looks again some day; what is found is
// told once.
func TestEveryOrder(t *testing.T) {
	if len(variants) == 0 {
		(&steps.Elsewhere{
			Path:    "github.com/stint-go/stint/internal/limit",
			Added:   map[string]string{"explored.go": exploredFile},
			Edits:   small,
			Mutants: mutants,
			Entry:   "func() explored { return V.Explore() }",
		}).Run(t)
		return
	}
	steps.Explore(t, mutants, scenes, func(variant string, s scene) func(*steps.Run) {
		return s.scenario(variants[variant])
	})
}

var scenes = []scene{
	{"-0 -1 -0 d d", "-1 -0"},
	{"-0 h -1 d d", "-1"},
	{"-0 -1 h -0 d d", "h -1"},
	{"-0 -1 -0 -1 h -0 d d", "h -1 -1"},
	{"-0 -1 +2 h -0 d d", "+2 +3"},
	{"-0 -1 -0' d d", "-1' +1 +1'"},
	{"-0 -1 -0 -1 h -0' -1' d d", "h -0 -1"},
}

var mutants = []steps.Variant{
	{Name: "who has seen enough begins, whoever else has", Edits: []steps.Edit{{File: "denials.go",
		Was: "&& d.few.CompareAndSwap(f, resting):", Is: "&& d.few.Swap(resting) != nil:"}}},
	{Name: "what is found is told to all", Edits: []steps.Edit{{File: "denials.go",
		Was: "!f.told.Load() && !f.told.Swap(true)", Is: "!f.told.Load()"}}},
	{Name: "a look never ends", Edits: []steps.Edit{{File: "denials.go",
		Was: "	looks.remove(l)\n", Is: ""}}},
	{Name: "a limit rests for ever", Edits: []steps.Edit{{File: "denials.go",
		Was: "restTime, func() { d.few.CompareAndSwap(resting, nil) }", Is: "restTime, func() {}"}}},
	{Name: "the memory of a look stays", Edits: []steps.Edit{{File: "denials.go",
		Was: "	d.look.Store(nil)\n", Is: ""}}},
}
