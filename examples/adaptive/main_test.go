package main

import (
	"bytes"
	"encoding/csv"
	"math"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// table is a run's rows, after the header's names.
func table(t *testing.T, out *bytes.Buffer) (rows []map[string]string) {
	t.Helper()
	all, err := csv.NewReader(out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(header, ",")
	for _, fields := range all {
		row := map[string]string{}
		for i, name := range names {
			row[name] = fields[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func number(t *testing.T, row map[string]string, name string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(row[name], 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// In fake time: at the end of each phase the limit is near the number of
// workers, who are busy, and latency is little more than the work. AIMD is near
// where latency is its timeout, one and a half times the work. Gradient2(1.5) lets
// about as many requests queue as there are workers.
func TestTheLimitFindsTheWorkers(t *testing.T) {
	room := map[string]float64{"gradient2": 2, "gradient2-1": 1, "vegas": 1, "aimd": 1.4}
	most := map[string]float64{"gradient2": 240, "gradient2-1": 135, "vegas": 135, "aimd": 140} // milliseconds
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const phase = 45 * time.Second
				l, b := limiter(a), newBackend()
				h := service(l, b)
				var out bytes.Buffer
				err := simulate(&out, a.name, l, b, phase, func() int {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
					return w.Code
				})
				if err != nil {
					t.Fatal(err)
				}
				rows := table(t, &out)
				for i, workers := range []float64{40, 20, 60} {
					last := rows[(i+1)*len(rows)/3-2]
					busy := number(t, last, "in_flight")
					limit, served, ms := number(t, last, "limit"), number(t, last, "served_per_second"), number(t, last, "latency_ms")
					if math.Abs(limit-room[a.name]*workers) > max(8, workers/4) || busy < workers || served < 9*workers || ms > most[a.name] {
						t.Errorf("%v workers: %v", workers, last)
					}
				}
			})
		})
	}
}

// The same over sockets, for as long as it takes to see that it runs.
func TestServes(t *testing.T) {
	var out bytes.Buffer
	if err := serve(&out, algorithms[2], time.Second); err != nil {
		t.Fatal(err)
	}
	served := 0.0
	for _, row := range table(t, &out) {
		served += number(t, row, "served_per_second")
	}
	if served == 0 {
		t.Error("nobody was served")
	}
}
