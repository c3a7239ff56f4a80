package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// spread is what came of the rounds: their median, and the least and the most.
type spread struct{ median, least, most float64 }

func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return spread{}
	}
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

// each works a figure out in each round. Ratios are made within a round, in which
// the machine was the same for both, and not of medians of different rounds.
func (g *group) each(of func(by func(name string) sample) float64) spread {
	rounds := len(g.samples[g.subjects[0].name])
	values := make([]float64, rounds)
	for r := range values {
		values[r] = of(func(name string) sample { return g.samples[name][r] })
	}
	return spreadOf(values)
}

// ratio is of one subject to another in some figure.
func (g *group) ratio(of, to string, figure func(sample) float64) spread {
	return g.each(func(by func(string) sample) float64 { return figure(by(of)) / figure(by(to)) })
}

// noise is how far the ratio of one thing to itself is from 1, in half the rounds.
func (g *group) noise(figure func(sample) float64) float64 {
	return g.each(func(by func(string) sample) float64 {
		return math.Abs(figure(by(againName))/figure(by(evalshaName)) - 1)
	}).median
}

// added is what each limit after the first costs, as a part of the first.
func (g *group) added(what *subject, figure func(sample) float64) spread {
	return g.each(func(by func(string) sample) float64 {
		first := figure(by(oneRate))
		return (figure(by(what.name)) - first) / float64(what.charges-1) / first
	})
}

func callsOf(s sample) float64  { return s.perSecond }
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
		return spreadOf(values).median
	}
	return sample{
		perSecond: median(callsOf),
		p50:       time.Duration(median(p50Of)),
		p99:       time.Duration(median(p99Of)),
		cpu:       time.Duration(median(cpuOf)),
		script:    time.Duration(median(scriptOf)),
	}
}

// How figures are written.

func (s spread) times() string {
	return fmt.Sprintf("%.2f × (%.2f–%.2f)", s.median, s.least, s.most)
}

// part writes a ratio below 1 as 1/x.
func (s spread) part() string {
	if s.median >= 1 {
		return s.times()
	}
	return fmt.Sprintf("1/%.1f (1/%.1f–1/%.1f)", 1/s.median, 1/s.most, 1/s.least)
}

func (s spread) percent() string {
	return fmt.Sprintf("%.0f %% (%.0f to %.0f)", 100*s.median, 100*s.least, 100*s.most)
}

func micros(d time.Duration) string {
	us := float64(d) / float64(time.Microsecond)
	if us < 10 {
		return fmt.Sprintf("%.2f µs", us)
	}
	return thousands(int64(math.Round(us))) + " µs"
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(int64(n)) + " " + what + "s"
}
