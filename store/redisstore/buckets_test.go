package redisstore

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/store"
)

// TestArgumentsOfTheDocument holds the table of docs/scripts.md to what a script gets.
func TestArgumentsOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/scripts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| ARGV | name | |\n| --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var want []string
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		want = append(want, strings.Trim(cell, " `"))
	}
	l, err := store.NewLimit(store.Spec{Name: "l", Units: 10, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p := newPlan([]*decision{{charges: []store.Charge{{Key: "k", Limit: l, Cost: 1}}, keys: []string{storageKey("", "k", l)}, leases: []store.LeaseID{{}}}})
	_, args := takeArgs(&p, timeArgs{}, 0)
	var got []string
	for _, arg := range args {
		got = append(got, fmt.Sprint(arg))
	}
	if !slices.Equal(got, want) {
		t.Errorf("ARGV is\n%q\nand docs/scripts.md has\n%q", got, want)
	}
}
