package main

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"strconv"
	"strings"
)

// run is the output of examples/adaptive: a real server, real clients, and a
// backend that has 40 workers, 20, and 60. Its numbers are of the machine it
// ran on, so the table is kept and the pictures are drawn from it.
//
//go:embed adaptive.csv
var run string

// series is one algorithm's run, a column's points over the seconds.
type series map[string]map[string][]point

// readRun reads a file of runs, which has the name of each in its first column and its instants in one called at.
func readRun(file, at, text string) (series, error) {
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	all := series{}
	for n, row := range rows[1:] {
		columns := all[row[0]]
		if columns == nil {
			columns = map[string][]point{}
			all[row[0]] = columns
		}
		var instant float64
		for i, name := range rows[0][1:] {
			x, err := strconv.ParseFloat(row[i+1], 64)
			if err != nil {
				return nil, fmt.Errorf("%s, line %d, %s: %w", file, n+2, name, err)
			}
			if name == at {
				instant = x
			}
			columns[name] = append(columns[name], point{instant, x})
		}
	}
	return all, nil
}

// drawAdaptive shows the limit beside what it is to find, and below it how long requests took.
func drawAdaptive(dir string) error {
	all, err := readRun("adaptive.csv", "seconds", run)
	if err != nil {
		return err
	}
	adaptations := []struct{ name, title string }{
		{"gradient2", "Gradient2(1.5), default"},
		{"gradient2-1", "Gradient2(1)"},
		{"vegas", "Vegas()"},
		{"aimd", "AIMD(150 ms)"},
	}
	var limits, latencies []picture
	for _, a := range adaptations {
		columns := all[a.name]
		if columns == nil {
			return fmt.Errorf("adaptive.csv has no run of %s", a.name)
		}
		limits = append(limits, picture{
			title: a.title,
			x:     "seconds", y: "requests", xStep: 40, yStep: 50, yMost: highest(all, "limit"),
			lines: []line{
				{"workers", grey, columns["workers"]},
				{"limit", blue, columns["limit"]},
			},
		})
		latencies = append(latencies, picture{
			x: "seconds", y: "milliseconds", xStep: 40, yStep: 100, yMost: highest(all, "latency_ms"),
			lines: []line{{"latency of admitted requests; the work takes 100 ms", orange, columns["latency_ms"]}},
		})
	}
	return grid{"AdaptiveConcurrency, at 1.5 times the capacity", append(limits, latencies...)}.save(dir, "adaptive")
}

// highest returns the highest value of a column in any run, so that all are drawn to one scale.
func highest(all series, column string) (most float64) {
	for _, columns := range all {
		for _, p := range columns[column] {
			most = max(most, p.y)
		}
	}
	return most
}
