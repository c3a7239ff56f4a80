// Command redis compares store/redisstore with other limiters on Redis, and
// with what Redis and its client do without any: on one server that it starts
// itself, in turns, so that what the machine does besides hits all of them alike.
// It prints docs/internals/benchmarks-redis.md.
//
//	cd benchmarks && go run ./redis -rounds 5 -time 1s
//
// It is a module of its own, so that what it compares with never reaches the
// go.sum of a user.
package main

import (
	"flag"
	"io"
	"log"
	"os"
	"slices"
	"time"
)

// config says how much is measured.
type config struct {
	rounds  int
	each    time.Duration
	program string
	keys    int    // "many keys"
	stored  int    // keys in the server when its memory is measured
	only    string // which tables: stacks, lone, limits, sizing, or all if empty
}

func main() {
	c := config{keys: 10_000, stored: 65_000}
	flag.IntVar(&c.rounds, "rounds", 5, "how often each is measured; medians are shown")
	flag.DurationVar(&c.each, "time", time.Second, "how long each takes in a round")
	flag.StringVar(&c.program, "redis-server", "redis-server", "the server to start")
	flag.StringVar(&c.only, "only", "", "measure only the tables of stacks, of a lone caller, of limits (decisions of several limits), or of sizing (what servers and clusters carry)")
	flag.Parse()
	if c.rounds < 1 {
		log.Fatal("benchmarks: -rounds must be 1 or more")
	}
	if !slices.Contains([]string{"", "stacks", "lone", "limits", "sizing"}, c.only) {
		log.Fatal("benchmarks: -only must be stacks, lone, limits or sizing")
	}
	if err := run(os.Stdout, c); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, c config) error {
	if c.only == "sizing" {
		return measureSizing(w, c)
	}
	server, err := startServer(c.program)
	if err != nil {
		return err
	}
	defer server.stop()
	subjects, end, err := newSubjects(server)
	if err != nil {
		return err
	}
	defer end()
	mixtures, endMixtures := newMixtures(server)
	defer endMixtures()
	stacks, endStacks, err := newStacks(server)
	if err != nil {
		return err
	}
	defer endStacks()

	all := plan(c, stacks, subjects, mixtures)
	var write func() // nil: the whole report
	switch c.only {
	case "stacks":
		all = all.stacked()
		write = func() { all.writeStacks(w) }
	case "lone":
		all = all.lone()
		write = func() { all.writeCompared(w) }
	case "limits":
		all = all.mixed()
		write = func() {
			all.writeLimits(w)
			writeAims(w, all.addedAims())
		}
	}
	if err := all.measure(server, c); err != nil {
		return err
	}
	if write != nil {
		write()
		return nil
	}
	memory, err := measureMemory(server, subjects, c.stored)
	if err != nil {
		return err
	}
	return report(w, c, server, all, memory)
}
