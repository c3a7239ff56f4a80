package memory_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/internal/test/explore/steps"
	"github.com/stint-go/stint/internal/test/explore/steps/maphash"
	"github.com/stint-go/stint/store"
)

// scene is a few callers' concurrent actions, each caller's in order: see world.do.
type scene struct {
	situation
	callers []string
	frozen  bool // the clock: all is decided in one microsecond
}

// situation is the state that the callers find.
type situation struct {
	name, before string
	maxKeys      int
}

// full says whether there are keys without a place.
func (is situation) full() bool { return is.maxKeys < 8 }

func (sc scene) String() string {
	clock := ""
	if sc.frozen {
		clock = ", in a microsecond"
	}
	return fmt.Sprintf("%s (%s): %s%s", sc.name, sc.before, strings.Join(sc.callers, " | "), clock)
}

// Keys are named by a letter, with their limit's before it: P.
var aKey = situation{"a key", "take Pa", 8}

var situations = []situation{
	{"nothing", "", 8},
	aKey,
	{"two shards", "take Px; take Pa", 32},
	{"two keys with one home", "take Pb; take Pa", 8},
	{"one unit is left", "take Pa:2", 8},
	{"expired keys", "take Pa; take Pc; pass 2s", 8},
	{"a full table", "take Pd; take Pe; take Pf; take Pg; take Pc; take Pa", 8},
	{"a full table of expired keys", "take d; take e; take f; take g; pass 2s; take Pc; take Pa", 8},
	{"a table that will shrink", "take s.d; take s.e; take s.f; take s.g; take s.h; take s.b; take s.c; " +
		"reset s.d; reset s.e; reset s.f; reset s.g; reset s.h; pass 2s; take Pa", 8},
	{"no room", "take Pb; take Pc", 2},
	{"no room but for expired keys", "take Pb; take Pc; pass 2s; take s.d", 3},
	{"room for one", "take Pb; take Pc", 3},
}

var doings = []string{
	"take Pa",
	"take Pa:2",
	"take Pa:0",
	"take Pb",
	"take Ph",
	"take Pa Pb",
	"take Pa; settle 0",
	"settle 0",
	"settle 3",
	"reset Pa",
	"pass 15us",
	"pass 2s",
}

var inTwoShards = []string{"take Py", "take Py Pa", "take Pa Py"}

// pairs are two callers in each situation, of each two doings.
func pairs(letters ...string) (all []scene) {
	more := append(slices.Clone(inTwoShards), doings...)
	for i, one := range more {
		for _, other := range more[i:] {
			for _, is := range situations {
				if is.maxKeys < 32 && slices.Contains(inTwoShards, one) {
					continue
				}
				for _, letter := range letters {
					all = append(all, is.scene(letter, one, other))
				}
			}
		}
	}
	return all
}

// threes are three callers, two of which charge a key.
func threes(in ...situation) (all []scene) {
	for _, other := range []string{"take Pa", "take Pa:0", "take Pa Pb", "take Ph", "settle 0", "reset Pa", "pass 2s"} {
		for _, is := range in {
			all = append(all, is.scene("", "take Pa", "take Pa", other))
		}
	}
	return all
}

// released are two callers of a key whose last slot may be released between them.
func released() (all []scene) {
	more := []string{"take Pa", "take Pa:0", "settle 0", "take Pa; settle 0", "reset Pa", "take Pb", "pass 2s"}
	for i, one := range more {
		for _, other := range more[i:] {
			all = append(all, aKey.scene("c.", one, other))
			all = append(all, situation{"a released key", "take Pa; settle 0", 8}.scene("c.", one, other))
		}
	}
	return all
}

// twins are two callers of one key under two limits.
func twins() (all []scene) {
	more := []string{"take a", "take a t.a", "take t.a a", "take t.a", "take a t.a; settle 0", "reset a", "pass 2s"}
	for i, one := range more {
		for _, other := range more[i:] {
			all = append(all, aKey.scene("", one, other))
			all = append(all, situation{"a key of two limits", "take a t.a", 8}.scene("", one, other))
		}
	}
	return all
}

// denied are two callers of one window. A bucket beside it denies one of them, so that it has to
// leave the window as it was, whatever comes between.
func denied() (all []scene) {
	is := situation{"a window and an empty bucket", "take w.a; take s.a:3", 8}
	for _, other := range []string{"take w.a:2", "take s.a w.a", "settle 0", "reset w.a", "take w.a s.b", "pass 2s"} {
		all = append(all, is.scene("", "take w.a s.a", other))
	}
	return all
}

func (is situation) scene(letter string, callers ...string) scene {
	for i := range callers {
		callers[i] = strings.ReplaceAll(callers[i], "P", letter)
	}
	is.before = strings.ReplaceAll(is.before, "P", letter)
	return scene{situation: is, callers: callers}
}

// frozen are the same scenes in one microsecond each.
func frozen(scenes []scene) (all []scene) {
	for _, sc := range scenes {
		sc.frozen = true
		all = append(all, sc)
	}
	return all
}

// limits are by the letter before a key's: their states are words, words or in a slab, in
// a slab, in a slab, words that don't expire meanwhile, and words of the first one's keys.
var limits = map[string]*store.Limit{
	"":   must(store.Spec{Name: "bucket", Units: 100_000, Period: time.Second, Burst: 3}),
	"q.": must(store.Spec{Name: "queue", Units: 100_000, Period: time.Second, Burst: 1, Queue: 3}),
	"w.": must(store.Spec{Name: "window", Algorithm: store.FixedWindow, Units: 3, Period: time.Second}),
	"c.": must(store.Spec{Name: "slots", Algorithm: store.Concurrency, Units: 1}),
	"s.": must(store.Spec{Name: "slow", Units: 3, Period: time.Hour}),
	"t.": must(store.Spec{Name: "twin", Units: 100_000, Period: time.Second, Burst: 2}),
}

func must(spec store.Spec) *store.Limit {
	l, err := store.NewLimit(spec)
	if err != nil {
		panic(err)
	}
	return l
}

func limitOf(name string) *store.Limit { return limits[name[:len(name)-1]] }

// keys are by their names.
var keys = map[string]string{}

// keyOf finds a key for a name: in a table of eight slots those of a and b begin at one
// home, those of x and y are in another shard, if there are two, and the others lie apart.
func keyOf(name string) string {
	name = strings.TrimPrefix(name, "t.")
	if key := keys[name]; key != "" {
		return key
	}
	letter := name[len(name)-1]
	home, shard := uint64(letter-'a')%8, uint64(0)
	switch letter {
	case 'b':
		home = 0
	case 'x', 'y':
		shard = 1
	}
	for i := 0; ; i++ {
		key := fmt.Sprint(name, i)
		hash := maphash.String(maphash.MakeSeed(), key)
		if max(hash^inside.Hash(limitOf(name)), 1)&0xffff_ffff*8>>32 == home && hash>>32&1 == shard {
			keys[name] = key
			return key
		}
	}
}

// once has a lock tried once before it is waited for: more tries come to the same.
var once = steps.Edit{File: "table.go", Was: "for range 4 {\n\t\tif sh.mu.TryLock", Is: "for range 1 {\n\t\tif sh.mu.TryLock"}

// noTimer leaves the timer out. It sweeps shards as calls do, and its steps would double the orders.
var noTimer = []steps.Edit{
	{File: "sweep.go", Was: "	s.startTimer(now)\n", Is: ""},
	{File: "settle.go", Was: "	if s.tickAt.Load() == noTick {\n		s.startTimer(s.steady())\n	}\n", Is: ""},
}

// mutants are stores with a mistake.
var mutants = []steps.Variant{
	{Name: "the clock is read before the state", Edits: []steps.Edit{
		{File: "take.go", Was: "		return nil\n	}\n	word := atomic.LoadInt64(&slot.word)\n", Is: "		return nil\n	}\n	now := s.steady()\n	word := atomic.LoadInt64(&slot.word)\n"},
		{File: "take.go", Was: "		now := s.steady()\n		// If", Is: "		// If"},
	}},
	{Name: "a charge is stored, not swapped", Edits: []steps.Edit{{File: "take.go",
		Was: "next == word || atomic.CompareAndSwapInt64(&slot.word, word, next)",
		Is:  "next == word || atomic.SwapInt64(&slot.word, next) != 1"}}},
	{Name: "a lock's holder leaves the word", Edits: []steps.Edit{
		{File: "visit.go", Was: "	\"slices\"\n", Is: "	\"slices\"\n	\"sync/atomic\"\n"},
		{File: "visit.go", Was: "v.slot, v.word = slot, slot.takeOut()", Is: "v.slot, v.word = slot, atomic.LoadInt64(&slot.word)"}}},
	{Name: "the clock is read before the lock", Edits: []steps.Edit{{File: "take.go",
		Was: "	sh.lock()\n	defer sh.mu.Unlock()\n	found := visits[0].takeOut()\n	now := s.instant(charges[0].Limit.FollowsCalendar(), charges[0].Limit.Algorithm() == store.Concurrency)\n",
		Is:  "	now := s.instant(charges[0].Limit.FollowsCalendar(), charges[0].Limit.Algorithm() == store.Concurrency)\n	sh.lock()\n	defer sh.mu.Unlock()\n	found := visits[0].takeOut()\n"}}},
	{Name: "the clock is read before the words are taken out", Edits: []steps.Edit{
		{File: "take.go", Was: "	allFound := s.lock(visits)\n	defer unlock(visits)\n	now := s.instant(wall, lease)\n",
			Is: "	now := s.instant(wall, lease)\n	allFound := s.lock(visits)\n	defer unlock(visits)\n"}}},
	{Name: "a denied call leaves a window charged", Edits: []steps.Edit{{File: "take.go",
		Was: "			restore(visits[:i+1], before)\n", Is: ""}}},
	{Name: "a settle leaves the word", Edits: []steps.Edit{{File: "settle.go",
		Was: "	found := v.takeOut()\n",
		Is:  "	found := false\n	if sl, found := v.shard.table.Load().find(v.key); found {\n		v.slot, v.word = sl, atomic.LoadInt64(&sl.word)\n	}\n"}}},
	{Name: "a table is replaced with the words in it", Edits: []steps.Edit{{File: "table.go",
		Was: "		w := old[i].takeOut() // for good: a call that found the slot here looks again\n",
		Is:  "		w := atomic.LoadInt64(&old[i].word)\n"}}},
	{Name: "an expired word is dropped without a look", Edits: []steps.Edit{{File: "table.go",
		Was: "if packed(word) && !atomic.CompareAndSwapInt64(&sl.word, word, vacant) {",
		Is:  "if packed(word) && atomic.SwapInt64(&sl.word, vacant) == 1 {"}}},
	{Name: "a reset takes no lock", Edits: []steps.Edit{
		{File: "store.go", Was: "		sh.lock()\n", Is: ""},
		{File: "store.go", Was: "		sh.mu.Unlock()\n", Is: ""}}},
	{Name: "a reset drops a word that it has not got", Edits: []steps.Edit{{File: "store.go",
		Was: "if w := sl.takeOut(); w != vacant {",
		Is:  "if w := atomic.LoadInt64(&sl.word); w != vacant {\n				atomic.CompareAndSwapInt64(&sl.word, w, vacant)"}}},
	{Name: "keys are counted in two steps", Edits: []steps.Edit{{File: "cap.go",
		Was: "if s.keys.Add(1) <= s.max {",
		Is:  "n := s.keys.Load() + 1\n	s.keys.Store(n)\n	if n <= s.max {"}}},
	{Name: "the sweep takes no lock", Edits: []steps.Edit{
		{File: "sweep.go", Was: "sh.mu.TryLock() {", Is: "sh != nil {"},
		{File: "sweep.go", Was: "			sh.mu.Unlock()\n", Is: ""}}},
	{Name: "shards are locked as they come", Edits: []steps.Edit{{File: "take.go",
		Was: "for ; j > 0 && visits[j].index < visits[j-1].index; j-- {",
		Is:  "for ; j > 9 && visits[j].index < visits[j-1].index; j-- {"}}},
	{Name: "the words are back after the lock", Edits: []steps.Edit{{File: "take.go",
		Was: "	defer sh.mu.Unlock()\n	found := visits[0].takeOut()\n",
		Is:  "	found := visits[0].takeOut()\n	sh.mu.Unlock()\n"}}},
}
