package lua_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/lua"
)

// The rights that docs/redis.md asks for are those that the scripts need.
func TestRights(t *testing.T) {
	want := []string{"eval", "evalsha"}
	for _, s := range []*lua.Script{lua.Take(^lua.Set(0)), lua.Settle(^lua.Set(0)), lua.Renew(), lua.Reset()} {
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(s.Source, -1) {
			want = append(want, strings.ToLower(m[1]))
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile(`\+([a-z]+)`).FindAllStringSubmatch(section, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/redis.md asks for\n%v, the scripts need\n%v", got, want)
	}
}
