package project

import (
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// make fuzz runs every fuzz target of every module.
func TestMakeFuzzHasEveryTarget(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	var want []string
	target := regexp.MustCompile(`(?m)^func (Fuzz\w*)\(f \*testing\.F\)`)
	for _, file := range tree(t, "*_test.go") {
		for _, m := range target.FindAllStringSubmatch(read(t, file), -1) {
			want = append(want, strings.TrimSuffix("./"+path.Dir(file), "/.")+" "+m[1])
		}
	}
	slices.Sort(want)
	got := strings.Split(strings.TrimSpace(run(t, ".", "make", "-s", "fuzz-list", "PKG=./...")), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("make fuzz runs\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
