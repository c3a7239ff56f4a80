package wire

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
)

// BenchmarkScript compares texts of the script that decides on token buckets: that of this
// tree, and those in the files that STINT_SCRIPTS names. They take turns on one server, each
// with keys of its own. An iteration is a turn of each. It reports the medians, of each text, of
//
//	cpu-us       CPU time of the server's main thread per decision
//	cpu-x        the same, as a multiple of this tree's in the same turn
//	script-us    time in the script per decision, by commandstats
//	decisions/s  of one caller
//
// To see what a change costs, print the script before it (go run ./lua/print), and compare it
// with the tree after it: make bench-script. To see the noise, compare a text with itself and
// a space. A situation compares only texts for the codecs that it has: those of several limits
// need what go run ./lua/print tokenbucket tokenbucket prints, that with a quota
// what go run ./lua/print tokenbucket fixedwindow prints.
func BenchmarkScript(b *testing.B) {
	type variant struct {
		name, sha, text string
	}
	server := redistest.Start(b)
	rdb := server.Client(func(o *redis.Options) { o.PoolSize = 1 })
	ctx := context.Background()
	texts := []variant{{name: "tree"}}
	for _, file := range strings.Fields(os.Getenv("STINT_SCRIPTS")) {
		text, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		sha, err := rdb.ScriptLoad(ctx, string(text)).Result()
		if err != nil {
			b.Fatalf("%s: %v", file, err)
		}
		name := file[strings.LastIndexByte(file, '/')+1:]
		texts = append(texts, variant{strings.TrimSuffix(name, ".lua"), sha, string(text)})
	}
	// decides reports whether the text is for decisions like this one. That for several charges
	// also decides single ones, but isn't the script for them.
	decides := func(v variant, charges int, quota bool) bool {
		several := strings.Contains(v.text, "local grants,")
		return v.sha == "" || several == (charges > 1) && strings.Contains(v.text, "letter == 102") == quota
	}
	spec := func(units int64, period time.Duration) store.Spec { return store.Spec{Units: units, Period: period} }
	// A charge of plenty isn't over before the next round, nor one of exhausted before the last.
	// A token of untagged takes no whole number of microseconds.
	plenty, exhausted := store.Spec{Units: 1, Period: time.Second, Burst: 1_000_000}, spec(1, time.Hour)
	untagged := store.Spec{Units: 3, Period: time.Second, Burst: 1_000_000}
	own := slices.Repeat([]store.Spec{plenty}, 128)
	five := slices.Repeat([]store.Spec{plenty}, 5)
	quota := store.Spec{Algorithm: store.FixedWindow, Units: 1_000_000_000, Window: store.Daily}
	for _, situation := range []struct {
		name    string
		specs   []store.Spec
		batch   int
		keys    int
		forget  bool // the keys before each round
		maxWait time.Duration
	}{
		{"alone/used", []store.Spec{plenty}, 1, 500, false, 0},
		{"alone/full", []store.Spec{spec(1000, time.Millisecond)}, 1, 500, false, 0},
		{"alone/new", []store.Spec{plenty}, 1, 500, true, 0},
		{"alone/denied", []store.Spec{exhausted}, 1, 500, false, 0},
		{"alone/waits", []store.Spec{plenty}, 1, 500, false, time.Second},
		{"alone/untagged", []store.Spec{untagged}, 1, 500, false, 0},
		{"alone/two", five[:2], 1, 500, false, 0},
		{"alone/five", five, 1, 500, false, 0},
		{"alone/quota", []store.Spec{plenty, quota}, 1, 500, false, 0},
		{"batch/used", []store.Spec{plenty}, 128, 10_000, false, 0},
		{"batch/full", []store.Spec{spec(1000, time.Millisecond)}, 128, 10_000, false, 0},
		{"batch/new", []store.Spec{plenty}, 128, 10_000, true, 0},
		{"batch/denied", []store.Spec{exhausted}, 128, 10_000, false, 0},
		{"batch/waits", []store.Spec{plenty}, 128, 10_000, false, time.Second},
		{"batch/untagged", []store.Spec{untagged}, 128, 10_000, false, 0},
		{"batch/own", own, 128, 10_000, false, 0}, // each decision on a limit of its own
		{"batch/hot", []store.Spec{plenty}, 128, 1, false, 0},
		{"batch/two", five[:2], 128, 10_000, false, 0},
		{"batch/five", five, 128, 10_000, false, 0},
		{"batch/quota", []store.Spec{plenty, quota}, 128, 10_000, false, 0},
		{"few/used", []store.Spec{plenty}, 14, 1_000, false, 0},
		{"few/two", five[:2], 14, 1_000, false, 0},
		{"few/five", five, 14, 1_000, false, 0},
		{"few/quota", []store.Spec{plenty, quota}, 14, 1_000, false, 0},
	} {
		b.Run(situation.name, func(b *testing.B) {
			server.Do("FLUSHALL") // the limits of other situations have other numbers
			together := len(situation.specs)
			if together == situation.batch {
				together = 1
			}
			all := slices.DeleteFunc(slices.Clone(texts), func(v variant) bool {
				return !decides(v, together, slices.Contains(situation.specs, quota))
			})
			var limits []*store.Limit
			for i, s := range situation.specs {
				s.Name = fmt.Sprintf("limit%d", i)
				l, err := store.NewLimit(s)
				if err != nil {
					b.Fatal(err)
				}
				limits = append(limits, l)
			}
			calls := make([][][]any, len(all))
			for v := range all {
				for from := 0; from < max(situation.keys, situation.batch); from += situation.batch {
					var ds []*Decision
					for i := from; i < from+situation.batch; i++ {
						d := &Decision{}
						of := limits
						if together == 1 {
							of = of[i%len(of):][:1]
						}
						for _, l := range of {
							c := store.Charge{Key: fmt.Sprintf("%d.10.0.%d", v, i%situation.keys), Limit: l, Cost: 1, MaxWait: situation.maxWait}
							d.Charges = append(d.Charges, c)
							d.Keys = append(d.Keys, StorageKey("stint:", c.Key, l))
							d.Leases = append(d.Leases, store.LeaseID{})
						}
						ds = append(ds, d)
					}
					p := NewTakeCall(ds)
					script, args := p.Args(Times{Wall: time.Now().UnixMicro() - store.Epoch*1_000_000}, 3+len(p.Keys))
					args[0], args[1], args[2] = "evalsha", cmp.Or(all[v].sha, rdb.ScriptLoad(ctx, script.Source).Val()), len(p.Keys)
					for i, key := range p.Keys {
						args[3+i] = key
					}
					calls[v] = append(calls[v], args)
				}
			}
			round := func(v int) (cpu, script, seconds float64) {
				if situation.forget {
					server.Do("FLUSHALL")
				}
				decisions := 0
				server.Do("CONFIG", "RESETSTAT")
				cpu = -server.CPU()
				began := time.Now()
				for decisions < 500*min(situation.batch, 20) {
					for _, args := range calls[v] {
						if err := rdb.Do(ctx, args...).Err(); err != nil {
							b.Fatal(err)
						}
						if decisions += situation.batch; !situation.forget && decisions >= 500*min(situation.batch, 20) {
							break
						}
					}
					if situation.forget {
						break
					}
				}
				n := float64(decisions)
				seconds = time.Since(began).Seconds() / n
				cpu = (cpu + server.CPU()) / n * 1e6
				_, usec := server.CommandStats("evalsha")
				return cpu, usec / n, seconds
			}
			measured := make([][4][]float64, len(all))
			for v := range all {
				// A text that doesn't read its arguments as they are sent is compared with nothing.
				answer, err := rdb.Do(ctx, calls[v][0]...).Slice()
				if err != nil || strings.Contains(fmt.Sprint(answer...), "?") {
					b.Fatalf("%s decided nothing: %q, %v", all[v].name, answer, err)
				}
				round(v)
			}
			turn := 0
			for b.Loop() {
				cpus := make([]float64, len(all))
				for i := range all {
					v := (i + turn) % len(all)
					cpu, script, seconds := round(v)
					cpus[v] = cpu
					measured[v][0] = append(measured[v][0], cpu)
					measured[v][1] = append(measured[v][1], script)
					measured[v][2] = append(measured[v][2], seconds)
				}
				for v := range all {
					measured[v][3] = append(measured[v][3], cpus[v]/cpus[0])
				}
				turn++
			}
			b.ReportMetric(0, "ns/op")
			for v, of := range all {
				m := &measured[v]
				b.ReportMetric(median(m[0]), of.name+":cpu-us")
				b.ReportMetric(median(m[1]), of.name+":script-us")
				b.ReportMetric(1/median(m[2]), of.name+":decisions/s")
				if v > 0 {
					b.ReportMetric(median(m[3]), of.name+":cpu-x")
				}
			}
		})
	}
}

func median[T cmp.Ordered](of []T) T {
	slices.Sort(of)
	return of[len(of)/2]
}
