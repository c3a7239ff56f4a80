package main

import (
	"math"
	"time"

	"github.com/stint-go/stint/benchmarks/internal/figures"
)

// each works a figure out in each round. Ratios are made within a round, in which
// the machine was the same for both, and not of medians of different rounds.
func (g *group) each(of func(by func(name string) sample) float64) figures.Spread {
	rounds := len(g.samples[g.subjects[0].name])
	values := make([]float64, rounds)
	for r := range values {
		values[r] = of(func(name string) sample { return g.samples[name][r] })
	}
	return figures.Of(values)
}

// ratio is of one subject to another in some figure.
func (g *group) ratio(of, to string, figure func(sample) float64) figures.Spread {
	return g.each(func(by func(string) sample) float64 { return figure(by(of)) / figure(by(to)) })
}

// noise is how far the ratio of one thing to itself is from 1, in half the rounds.
func (g *group) noise(figure func(sample) float64) float64 {
	return g.each(func(by func(string) sample) float64 {
		return math.Abs(figure(by(againName))/figure(by(evalshaName)) - 1)
	}).Median
}

// added is the cost of each limit after the first, as a part of the first.
func (g *group) added(what *subject, figure func(sample) float64) figures.Spread {
	return g.each(func(by func(string) sample) float64 {
		first := figure(by(oneRate))
		return (figure(by(what.name)) - first) / float64(what.charges-1) / first
	})
}

func callsOf(s sample) float64  { return s.perSecond }
func timeOf(s sample) float64   { return 1 / s.perSecond }
func allocsOf(s sample) float64 { return s.allocs }
func p50Of(s sample) float64    { return float64(s.p50) }
func p99Of(s sample) float64    { return float64(s.p99) }
func cpuOf(s sample) float64    { return float64(s.cpu) }
func scriptOf(s sample) float64 { return float64(s.script) }

// middle is the median of each figure.
func middle(all []sample) sample {
	median := func(of func(sample) float64) float64 {
		values := make([]float64, len(all))
		for i, one := range all {
			values[i] = of(one)
		}
		return figures.Of(values).Median
	}
	return sample{
		perSecond: median(callsOf),
		p50:       time.Duration(median(p50Of)),
		p99:       time.Duration(median(p99Of)),
		cpu:       time.Duration(median(cpuOf)),
		script:    time.Duration(median(scriptOf)),
		allocs:    median(allocsOf),
	}
}
