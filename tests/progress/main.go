// Command progress runs go test -json and prints a line for each package when it has ended, with the output
// of what failed. By itself, go test prints packages in the order in which they were named, so the
// longest one holds back the lines of all others.
//
//	go run ./progress go test -json ./...
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: progress go test -json ...")
		os.Exit(2)
	}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		err = errors.Join(show(os.Stdout, events), cmd.Wait())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// show prints the events of a run as packages end.
func show(to io.Writer, events io.Reader) error {
	outputs := map[[2]string]string{} // by package and test
	failed := map[[2]string]bool{}
	builds := map[string]string{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var e event
		if json.Unmarshal(line, &e) != nil { // not from go test
			fmt.Fprintf(to, "%s", line)
			continue
		}
		at := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			builds[e.ImportPath] += e.Output
		case "output":
			if e.Test == "" && strings.HasPrefix(e.Output, "FAIL") { // the line that show prints itself
				continue
			}
			outputs[at] += e.Output
		case "pass", "skip", "fail":
			if e.Test != "" {
				failed[at] = e.Action == "fail"
				continue
			}
			if e.Action == "fail" {
				fmt.Fprint(to, builds[e.FailedBuild])
				for test := range failed {
					if test[0] == e.Package && failed[test] {
						fmt.Fprint(to, outputs[test])
					}
				}
				fmt.Fprint(to, outputs[at])
			}
			if e.Action != "skip" { // it has tests
				word := map[string]string{"pass": "ok  ", "fail": "FAIL"}[e.Action]
				fmt.Fprintf(to, "%s  %s  %v\n", word, e.Package,
					time.Duration(e.Elapsed*float64(time.Second)).Round(10*time.Millisecond))
			}
			for test := range outputs {
				if test[0] == e.Package {
					delete(outputs, test)
					delete(failed, test)
				}
			}
		}
	}
}
