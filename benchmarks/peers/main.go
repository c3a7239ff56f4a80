// Command peers compares stint in memory with other limiters in Go: decisions,
// middleware, and a server under load. Everything takes its turn in each round, so
// that what the machine does besides hits all of them alike. It prints the section
// "Beside others, in memory" of docs/internals/benchmarks.md.
//
//	cd benchmarks && go run ./peers -rounds 9 -time 50ms
package main

import (
	"flag"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"time"
)

// config says how much is measured.
type config struct {
	rounds int
	each   time.Duration
	keys   int            // "many keys"
	cpu    bool           // the time of one goroutine is CPU time
	only   *regexp.Regexp // the groups measured, and no server; nil: all
}

func main() {
	if name := os.Getenv(serveVariable); name != "" {
		if err := serve(name, os.Stdin, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	c := config{keys: 100_000}
	flag.IntVar(&c.rounds, "rounds", 9, "how often each is measured; medians are shown")
	flag.DurationVar(&c.each, "time", 50*time.Millisecond, "how long each takes in a round")
	flag.BoolVar(&c.cpu, "cpu", false, "measure one goroutine by the process's CPU time, on a machine that does other work, too")
	flag.Func("only", "measure the groups whose names match this regular expression, and no server", func(text string) (err error) {
		c.only, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	if c.rounds < 1 {
		log.Fatal("benchmarks: -rounds must be 1 or more")
	}
	if err := run(os.Stdout, c); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, c config) error {
	groups, err := decisions(c)
	if err != nil {
		return err
	}
	web, err := requests()
	if err != nil {
		return err
	}
	groups = append(web, groups...) // several limits first: that is what users mount
	if c.only != nil {
		groups = slices.DeleteFunc(groups, func(g *group) bool { return !c.only.MatchString(g.name) })
	}
	for n := range c.rounds {
		for _, g := range groups {
			g.cpu = c.cpu && g.goroutines == 1
			g.round(n, c.each)
		}
	}
	if c.only != nil {
		return report(w, c, groups, nil)
	}
	e, err := startEndToEnd()
	if err != nil {
		return err
	}
	defer e.stop()
	// A server's CPU time is counted in larger pieces than a loop's.
	if err := e.measure(c.rounds, 15*c.each); err != nil {
		return err
	}
	return report(w, c, groups, e)
}
