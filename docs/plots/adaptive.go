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

// drawAdaptive shows the limit beside what it is to find, and how long requests
// took.
func drawAdaptive(dir string) error {
	all, err := readRun("adaptive.csv", "seconds", run)
	if err != nil {
		return err
	}
	for _, a := range []struct{ name, title string }{
		{"gradient2", "Gradient2, tolerance 1"},
		{"vegas", "Vegas"},
		{"aimd", "AIMD, timeout 150 ms"},
	} {
		columns := all[a.name]
		if columns == nil {
			return fmt.Errorf("adaptive.csv has no run of %s", a.name)
		}
		err := picture{
			title: a.title + ", at 1.5 times the capacity",
			x:     "seconds", y: "requests in flight", xStep: 10, yStep: 20,
			lines: []line{
				{"workers", grey, columns["workers"]},
				{"in flight", orange, columns["in_flight"]},
				{"limit", blue, columns["limit"]},
			},
		}.save(dir, "adaptive-"+a.name)
		if err != nil {
			return err
		}
	}
	return picture{
		title: "Latency of admitted requests; the work takes 100 ms",
		x:     "seconds", y: "milliseconds", xStep: 10, yStep: 50,
		lines: []line{
			{"Gradient2, tolerance 1", blue, all["gradient2"]["latency_ms"]},
			{"Vegas", orange, all["vegas"]["latency_ms"]},
			{"AIMD, timeout 150 ms", grey, all["aimd"]["latency_ms"]},
		},
	}.save(dir, "adaptive-latency")
}
