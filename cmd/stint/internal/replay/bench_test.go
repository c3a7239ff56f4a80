package replay_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// accessLog returns a combined log of n requests of clients, of which few send most.
func accessLog(n, clients int) []byte {
	var b bytes.Buffer
	rnd := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rnd, 1.1, 10, uint64(clients-1))
	at := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for range n {
		at = at.Add(time.Duration(rnd.ExpFloat64() * float64(2*time.Millisecond)))
		c := zipf.Uint64()
		fmt.Fprintf(&b, "10.%d.%d.%d - - [%s] \"GET /items/%d?page=2 HTTP/1.1\" 200 %d \"https://example.com/\" \"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36\"\n",
			c>>16, c>>8&255, c&255, at.Format("02/Jan/2006:15:04:05 -0700"), rnd.IntN(1000), rnd.IntN(9999))
	}
	return b.Bytes()
}

func byAddress(n int64) func() (*stint.Limiter, error) {
	return func() (*stint.Limiter, error) {
		return stint.New(stint.Rate(n, time.Second, stint.WithBurst(4*n)), stint.WithKey(stint.RemoteIP()))
	}
}

// A line costs the reading, two scenarios, and the report.
func BenchmarkRun(b *testing.B) {
	for _, against := range []bool{false, true} {
		b.Run(fmt.Sprintf("against=%v", against), func(b *testing.B) {
			data := accessLog(300_000, 100_000)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				log, err := replay.Read("access.log", bytes.NewReader(data))
				if err != nil {
					b.Fatal(err)
				}
				var opts []replay.RunOption
				if against {
					opts = append(opts, replay.WithAgainst(byAddress(1)))
				}
				r, err := replay.Run(byAddress(2), log, opts...)
				if err != nil {
					b.Fatal(err)
				}
				if r.Log.Requests != 300_000 || r.Scenarios[0].Denied == 0 {
					b.Fatal(r.Log, r.Scenarios[0].Count)
				}
			}
			b.ReportMetric(300_000*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}

// Two scenarios again, and an envelope for each key.
func BenchmarkSuggest(b *testing.B) {
	data := accessLog(300_000, 100_000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		log, err := replay.Read("access.log", bytes.NewReader(data))
		if err != nil {
			b.Fatal(err)
		}
		r, err := replay.Suggest(byAddress(2), log, replay.WithHorizon(10*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		if l := r.Limits[0]; l.Shares[1].Unknown != "" {
			b.Fatal(l)
		}
	}
	b.ReportMetric(300_000*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}
