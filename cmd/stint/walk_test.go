package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/cmd/stint/internal/day"
)

// The walk through a day in docs/rollout.md shows what its commands print.
func TestWalkThroughADay(t *testing.T) {
	text, err := os.ReadFile("../../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) (all []string) {
		for _, m := range regexp.MustCompile("(?sm)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		return all
	}
	policies, sessions := block("yaml"), block("console")
	if len(policies) != 2 || len(sessions) != 3 || !strings.Contains(policies[0], "burst: 20") {
		t.Fatalf("%d policies, %d sessions", len(policies), len(sessions))
	}
	files(t, map[string]string{"policy.yaml": policies[0], "old.yaml": policies[0]})
	log, err := os.Create("access.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := day.Write(log); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for i, session := range sessions {
		if i == 2 {
			wider := strings.Replace(policies[0], "burst: 20", "burst: 50", 1)
			if err := os.WriteFile("policy.yaml", []byte(wider), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		line, want, _ := strings.Cut(session, "\n")
		args, ok := strings.CutPrefix(line, "$ stint ")
		if !ok {
			t.Fatalf("no command: %s", line)
		}
		code, out, errs := command(t, "", words(args)...)
		if code != 0 || strings.TrimRight(out, "\n") != strings.TrimRight(want, "\n") {
			t.Errorf("%s: exit code %d: %s\nthe document isn't what it prints:\n%s", line, code, errs, out)
		}
	}
	inGo := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(inGo, []byte(policies[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := command(t, "", "check", "--func", "user=header.X-User", inGo); code != 0 {
		t.Errorf("the file that stands for Go code: exit code %d: %s%s", code, out, errs)
	}
}

// words splits a command line, in which single quotes may be around a word.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
