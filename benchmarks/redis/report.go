package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

// report writes docs/internals/benchmarks-redis.md. What it says between the tables
// holds whatever the figures are.
func report(w io.Writer, c config, s *server, all groups, memory map[string]keyMemory) error {
	now, err := s.info()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Benchmarks on Redis

    make bench-redis ROUNDS=%d TIME=%v

%s on the same %d cores as its callers, loopback, %s, go-redis
%s, %s; medians of %s. Each round measures everything in turn. Client
and server share the cores, so calls per second show what both cost together. Server CPU
is that of its main thread, which a fleet shares. A ratio compares two measurements of
one round; shown are its median and, in brackets, the least and the most.
"%s" is the call that stint makes, by go-redis alone.

`, c.rounds, c.each, "Redis "+now.version, runtime.NumCPU(), runtime.Version(),
		module("github.com/redis/go-redis/v9"), time.Now().Format(time.DateOnly), figures.Many(c.rounds, "round"), evalshaName)

	all.stacked().writeStacks(&b)
	all.compared().writeCompared(&b)
	fmt.Fprintf(&b, `
Bytes per key, for keys of one length: what the server reports for one key, and how much
%s keys add to its memory, tables of keys included.

| | MEMORY USAGE | used_memory |
| --- | --- | --- |
`, figures.Thousands(int64(c.stored)))
	for _, s := range all.compared()[0].subjects {
		if m, ok := memory[s.name]; ok {
			fmt.Fprintf(&b, "| %s | %.0f | %.0f |\n", s.name, m.usage, m.used)
		}
	}
	fmt.Fprintln(&b)
	all.mixed().writeLimits(&b)
	fmt.Fprintf(&b, `Aims. Noise is by how much two measurements of the same EVALSHA in one round differ in
half the rounds.

`)
	writeAims(&b, aims(all, memory))
	_, err = b.WriteTo(w)
	return err
}

// writeCompared writes the table of each group, and the ratios of stint to its peer.
func (gs groups) writeCompared(w io.Writer) {
	for _, g := range gs {
		g.write(w)
	}
	fmt.Fprintf(w, "| stint against %s | calls/s | server CPU | p50 | p99 |\n| --- | --- | --- | --- | --- |\n", peerName)
	for _, g := range gs {
		fmt.Fprintf(w, "| %v | %s | %s | %s | %s |\n", g.load,
			g.ratio(stintName, peerName, callsOf).Times(), g.ratio(stintName, peerName, cpuOf).Times(),
			g.ratio(stintName, peerName, p50Of).Times(), g.ratio(stintName, peerName, p99Of).Times())
	}
}

// writeLimits writes the tables of mixtures.
func (gs groups) writeLimits(w io.Writer) {
	fmt.Fprint(w, `Decisions of several limits, alone and in batches. "In scripts" is the server's time by
INFO commandstats, "beside one rate" the same as a multiple. "An added limit" is the cost
of each limit after the first, in percent of the first. Slots are released outside the
measurement unless a row says otherwise. Where kinds of decisions are mixed, the multiple
is against the same decisions among their own kind. Calls pause every 50 ms, so there are
fewer per second than with one limit above.

`)
	for _, g := range gs {
		g.writeMixtures(w)
	}
}

func (g *group) write(w io.Writer) {
	fmt.Fprintf(w, "| %v | calls/s | p50 | p99 | server CPU a call | in scripts |\n| --- | --- | --- | --- | --- | --- |\n", g.load)
	for _, s := range g.subjects {
		m := middle(g.samples[s.name])
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s |\n", s.name, figures.Thousands(int64(m.perSecond)),
			figures.Micros(m.p50), figures.Micros(m.p99), figures.Micros(m.cpu), figures.Micros(m.script))
	}
	fmt.Fprintln(w)
}

func (g *group) writeMixtures(w io.Writer) {
	fmt.Fprintf(w, "| stint, %v | calls/s | p50 | p99 | server CPU a call | in scripts | beside one rate | an added limit |\n", g.load)
	fmt.Fprintf(w, "| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for i := range g.subjects {
		s := &g.subjects[i]
		m := middle(g.samples[s.name])
		multiple, added := g.ratio(s.name, oneRate, scriptOf).Times(), ""
		if s.charges > 1 {
			added = g.added(s, scriptOf).Percent()
		}
		if s.parts != nil {
			multiple = g.apart(s).Times() + " of its parts"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", s.name, figures.Thousands(int64(m.perSecond)),
			figures.Micros(m.p50), figures.Micros(m.p99), figures.Micros(m.cpu), figures.Micros(m.script), multiple, added)
	}
	fmt.Fprintln(w)
}

// apart is the time of a mixture as a multiple of the time of its parts, as many of each.
func (g *group) apart(s *subject) figures.Spread {
	return g.each(func(by func(string) sample) float64 {
		sum := 0.0
		for _, part := range s.parts {
			sum += scriptOf(by(part))
		}
		return scriptOf(by(s.name)) * float64(len(s.parts)) / sum
	})
}

// module is the version of a module that is in this program.
func module(path string) string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "of an unknown version"
}
