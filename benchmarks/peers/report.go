package main

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

var peers = []string{
	"github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2", "github.com/go-chi/httprate",
	"github.com/ulule/limiter/v3", "github.com/didip/tollbooth/v7", "github.com/failsafe-go/failsafe-go",
	"golang.org/x/time", "github.com/labstack/echo/v4",
}

// report writes the section of docs/internals/benchmarks.md; e is nil if no server was measured.
func report(w io.Writer, c config, groups []*group, e *endToEnd) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, `## Beside others, in memory

    make bench-peers ROUNDS=%d TIME=%v

%s, %d cores, %s; medians of %s.
Each round measures every limiter in turn. A ratio compares two measurements of the same round. The tables show
the median of the ratios and, in brackets, the least and the greatest ratio.
Peers: %s.

Every limiter decides one limit by one key: a token bucket, or its nearest algorithm. If a table names several limits,
stint decides them together, and the peers are nested middlewares. The middlewares are called without a server. All of
them use the connection's address as the key. In the tables "with fields", they send RateLimit fields.

`, c.rounds, c.each, runtime.Version(), runtime.NumCPU(), time.Now().Format(time.DateOnly), figures.Many(c.rounds, "round"), versions())
	for _, g := range groups {
		g.write(&b)
	}
	if e != nil {
		e.write(&b)
	}
	fmt.Fprint(&b, "The aims are multiples of the time of the fastest peer in the same run:\n\n| figure | wanted | median of the rounds (least–most) | |\n| --- | --- | --- | --- |\n")
	for _, g := range groups {
		for _, a := range g.aims {
			r := g.ratio(a.of, g.fastest())
			fmt.Fprintf(&b, "| %s: %s against %s | ≤ %g × | %s | %s |\n", g.name, a.of, g.fastest(), a.most, r.Times(), verdict(r.Median <= a.most))
		}
	}
	if e != nil {
		mine, other := e.above(withPermit), e.above(e.lightest())
		fmt.Fprintf(&b, "| a server's CPU a request: %s against %s | ≤ 1 × | %.2f × | %s |\n", withPermit, e.lightest(),
			mine.Median/other.Median, verdict(mine.Median <= other.Median))
	}
	_, err := b.WriteTo(w)
	return err
}

func verdict(holds bool) string {
	if holds {
		return "holds"
	}
	return "missed"
}

func (g *group) write(w io.Writer) {
	fmt.Fprintf(w, "| %s | ns | against %s | allocations | bytes |\n| --- | --- | --- | --- | --- |\n", g.name, g.fastest())
	order := slices.Clone(g.subjects)
	slices.SortStableFunc(order, func(a, b subject) int {
		return int(g.median(a.name, timeOf)*10) - int(g.median(b.name, timeOf)*10)
	})
	for _, s := range order {
		fmt.Fprintf(w, "| %s | %.0f | %s | %.0f | %.0f |\n", s.name, g.median(s.name, timeOf), g.ratio(s.name, g.fastest()).Times(),
			g.median(s.name, allocsOf), g.median(s.name, bytesOf))
	}
	fmt.Fprintln(w)
}

func (e *endToEnd) write(w io.Writer) {
	fmt.Fprintf(w, `A net/http server runs in its own process. Each of %d connections sends one request after the other. The table shows
the CPU time of the server per request, and how much of it is added by the limiter.

| server | CPU a request | added by the limiter |
| --- | --- | --- |
`, connections)
	for _, name := range e.order {
		added := "–"
		if name != bareServer {
			a := e.above(name)
			added = fmt.Sprintf("%.2f µs (%.2f–%.2f)", a.Median/1000, a.Least/1000, a.Most/1000)
		}
		fmt.Fprintf(w, "| %s | %.2f µs | %s |\n", name, figures.Of(slices.Clone(e.perCall[name])).Median/1000, added)
	}
	fmt.Fprintln(w)
}

// versions are those of the peers in this program.
func versions() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var all []string
	for _, m := range build.Deps {
		if slices.Contains(peers, m.Path) {
			all = append(all, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
		}
	}
	return strings.Join(all, ", ")
}
