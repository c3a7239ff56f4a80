package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

// aim is a figure that was to be reached.
type aim struct {
	what, want, got string
	holds           bool
	untold          bool // the machine was too noisy to say
}

// tooNoisy is how much noise leaves nothing to say of two that should be equal.
const tooNoisy = 0.1

func besideNoise(r figures.Spread, noise float64) string {
	return fmt.Sprintf("%s; noise %.1f %%", r.Times(), 100*noise)
}

func aims(all groups, memory map[string]keyMemory) []aim {
	var out []aim
	hot, spreadOut, mixed := all.at(128, true), all.at(128, false), all.mixed()
	keys := fmt.Sprintf("128 callers, %s keys", figures.Thousands(int64(spreadOut.keys)))
	const one = "128 callers, one hot key"
	against := func(g *group, where, what string, figure func(sample) float64, want float64) {
		r := g.ratio(stintName, peerName, figure)
		a := aim{what: where + ": " + what + ", against " + peerName}
		if want > 1 {
			a.want, a.got, a.holds = fmt.Sprintf("≥ %g ×", want), r.Times(), r.Median >= want
		} else {
			a.want, a.got, a.holds = fmt.Sprintf("≤ 1/%g", 1/want), r.Part(), r.Median <= want
		}
		out = append(out, a)
	}
	against(spreadOut, keys, "calls a second", callsOf, 4.5)
	against(hot, one, "calls a second", callsOf, 12)
	against(spreadOut, keys, "server CPU a call", cpuOf, 1./5)
	against(hot, one, "server CPU a call", cpuOf, 1./15)
	against(spreadOut, keys, "p99", p99Of, 1./4)
	against(hot, one, "p99", p99Of, 1./4)

	for _, b := range []struct {
		what string
		of   func(keyMemory) float64
	}{
		{"MEMORY USAGE", func(b keyMemory) float64 { return b.usage }},
		{"used_memory", func(b keyMemory) float64 { return b.used }},
	} {
		r := b.of(memory[stintName]) / b.of(memory[peerName])
		out = append(out, aim{"bytes a key, " + b.what + ", against " + peerName, "≤ 0.8 ×", fmt.Sprintf("%.3f ×", r), r <= 0.8, false})
	}
	for _, isHot := range []bool{true, false} {
		g := all.at(1, isHot)
		against := fmt.Sprintf(", %v, against a plain EVALSHA of the same script", g.load)
		r, noise := g.ratio(stintName, evalshaName, callsOf), g.noise(callsOf)
		out = append(out, aim{"calls a second" + against, "≥ 1 ×, but for noise", besideNoise(r, noise), r.Median >= 1-noise, noise > tooNoisy})
		r, noise = g.ratio(stintName, evalshaName, p50Of), g.noise(p50Of)
		out = append(out, aim{"p50" + against, "≤ 1 ×, but for noise", besideNoise(r, noise), r.Median <= 1+noise, noise > tooNoisy})
	}
	return append(out, mixed.addedAims()...)
}

// addedAims are those of groups of mixtures: alone, and in batches.
func (gs groups) addedAims() []aim {
	var out []aim
	for i, where := range []string{"alone", "in batches"} {
		for j := range gs[i].subjects {
			what := &gs[i].subjects[j]
			if what.charges < 2 {
				continue
			}
			r, most := gs[i].added(what, scriptOf), 0.45
			if where == "in batches" { // where the first costs next to nothing
				most = batched(what.name)
			}
			out = append(out, aim{"an added limit, " + where + ": " + what.name,
				fmt.Sprintf("≤ %.0f %% of the first", 100*most), r.Percent(), r.Median <= most, false})
		}
	}
	return out
}

// batched is the cost that the last limit of a decision may add in a batch, as a part of
// what the first takes.
func batched(limits string) float64 {
	for _, k := range []struct {
		last string
		most float64
	}{{"sliding window", 1.5}, {"slot", 1.2}, {"quota", 0.8}} {
		if strings.HasSuffix(limits, k.last) {
			return k.most
		}
	}
	return 0.6
}

func writeAims(w io.Writer, all []aim) {
	fmt.Fprintf(w, "| aim | wanted | median of the rounds (least–most) | |\n| --- | --- | --- | --- |\n")
	for _, a := range all {
		verdict := "missed"
		if a.holds {
			verdict = "holds"
		}
		if a.untold {
			verdict = "too noisy to say"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", a.what, a.want, a.got, verdict)
	}
}
