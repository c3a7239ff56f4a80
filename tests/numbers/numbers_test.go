package numbers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/tests/doctest"
)

const document = "../../docs/coming-from.md"

// Each limit of docs/coming-from.md that has numbers does what they say, and its blocks print
// what they say.
func TestComingFrom(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	var program strings.Builder
	program.WriteString(header)
	rows, blocks := rowsOf(text), doctest.Blocks(text, "")
	if len(rows) < 40 || len(blocks) < 2 {
		t.Fatalf("%d rows and %d blocks", len(rows), len(blocks))
	}
	program.WriteString("func TestRows(t *testing.T) {\n\tnumbers.Test(t, []numbers.Row{\n")
	for _, r := range rows {
		fmt.Fprintf(&program, "\t\t{%q, []stint.Option{%s}, %q},\n", r.Code, r.Code, r.Does)
	}
	program.WriteString("\t})\n}\n")
	for i, code := range blocks {
		fmt.Fprintf(&program, block, i, code, used(code), printed(code))
	}
	file := filepath.Join(t.TempDir(), "document_test.go")
	if err := os.WriteFile(file, []byte(program.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "test", "-count=1", "-vet=off", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	const held = "1,048,576 keys"
	if memstore.DefaultMaxKeys != number("1,048,576") || !strings.Contains(text, held) {
		t.Errorf("it doesn't say that a memstore holds %d keys", memstore.DefaultMaxKeys)
	}
}

const header = `package document

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/tests/numbers"
)

`

// block is a test of a block, whose package fmt is a Printer.
const block = `
func TestBlock%d(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, fmt := context.Background(), new(numbers.Printer)
		const key = "a key"
		%s
		%s
		if want, got := %q, fmt.Printed(); got != want {
			t.Errorf("it prints\n%%s\nand not\n%%s", got, want)
		}
	})
}
`

// used uses the variables that code declares, as the reader's program does further on.
func used(code string) (all string) {
	for _, m := range regexp.MustCompile(`(?m)^([\w, ]+) := `).FindAllStringSubmatch(code, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			if name != "_" {
				all += "_ = " + name + "\n"
			}
		}
	}
	return all + "_, _ = ctx, key\n"
}

// printed is what a block says that it prints: the comments of its calls of Println.
func printed(code string) (all string) {
	for _, m := range regexp.MustCompile(`(?m)fmt\.Println\(.*\) // (.*)$`).FindAllStringSubmatch(code, -1) {
		all += m[1] + "\n"
	}
	return all
}

// rowsOf are the lines of the document's tables that have numbers.
func rowsOf(text string) (all []Row) {
	withNumbers := false
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case !strings.HasPrefix(line, "| "):
			withNumbers = false
		case cells[len(cells)-1] == "in numbers":
			withNumbers = true
		case withNumbers && len(cells) == 3 && cells[0] != "---":
			all = append(all, Row{Code: strings.Trim(cells[1], "`"), Does: cells[2]})
		}
	}
	return all
}

// Words that aren't true are found.
func TestWrong(t *testing.T) {
	two := []stint.Option{stint.Rate(2, time.Second)}
	queue := []stint.Option{stint.Rate(2, time.Second, stint.WithAlgorithm(stint.LeakyBucket), stint.WithQueue(1))}
	for does, want := range map[string]string{
		"2 pass, 1 denied; after 500 ms 1 passes, 1 denied": "",
		"3 pass":                             "request 3 is denied",
		"1 passes, 1 denied":                 "request 2 passes",
		"2 pass, 1 denied; after 1 s 3 pass": "request 6 is denied",
		"1 passes with `RateLimit: x`":       `request 1 has RateLimit: "rate";r=1;t=1`,
		"1 passes with status 201":           "request 1 has the status 200",
		"one caller waits 0 0 .4 s":          "call 3 waits 500ms",
		"each takes 1 s: 1 waits .1 s":       "request 1 waits 0s",
		"2 pass, then some":                  `no words for "then some"`,
		"status 200":                         `no words for "status 200"`,
		"2 passengers":                       `no words for "engers"`,
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := strings.Join(Wrong(Row{Options: two, Does: does}), "; "); got != want {
				t.Errorf("%s: %q, want %q", does, got, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		if got := strings.Join(Wrong(Row{Options: queue, Does: "waits 0 .4 s, 1 denied"}), "; "); got != "request 2 waits 500ms" {
			t.Error(got)
		}
	})
}
