package warn

import (
	"slices"
	"strconv"
	"testing"
)

// user uses one source, for a limit of a name.
type user struct {
	name string
	of   *Source
}

func (u *user) Silent() Set                                 { return 0 }
func (u *user) Uses(s *Source) (limits []string, uses bool) { return []string{u.name}, s == u.of }
func (u *user) Idle() bool                                  { return false }

func (u *user) Denies(string, int64) bool { return false }

func (u *user) Warn(*Warning) {}

// A book has room for what is wrong now, however much was wrong before. What still is
// wrong stays in it.
func TestBookHasRoom(t *testing.T) {
	var b Book
	stays, changes := &user{"stays", new(Source)}, &user{}
	b.Find([]User{stays, changes}, stays.of, 1<<OneKey)
	for i := range 2 * most {
		changes.name, changes.of = strconv.Itoa(i), new(Source)
		if news := b.Find([]User{stays, changes}, changes.of, 1<<OneKey); len(news) != 1 {
			t.Fatalf("%d notices of mistake %d, want 1", len(news), i)
		}
	}
	if again := b.Find([]User{stays, changes}, changes.of, 1<<OneKey); len(again) != 0 {
		t.Errorf("the newest is told again")
	}
	for _, u := range []*user{stays, changes} {
		if all := b.About(u); len(all) != 1 || !slices.Equal(all[0].Limits, []string{u.name}) {
			t.Errorf("about %s: %d warnings, want its own", u.name, len(all))
		}
	}
	if len(b.all) > most {
		t.Errorf("%d warnings are kept, want at most %d", len(b.all), most)
	}
}
