// Command fairqueue shares eight slots among three tenants: app has two callers, shop has four, and bulk sends from
// forty for 20 of 30 seconds. The program serves them first in the order of arrival and then by a fair queue, and
// prints how many slots each tenant held in each second:
//
//	go run ./examples/fairqueue
//
// In the order of arrival, bulk gets most slots, and fills the queue. With the fair queue, app keeps its two slots and
// the others get three each. docs/plots draws the output:
//
//	go run ./examples/fairqueue > docs/plots/fairqueue.csv && make plots
package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// tenants are the owners of API keys. A client can't be a tenant whose key it doesn't have.
var tenants = map[string]string{"key-1": "app", "key-2": "shop", "key-3": "bulk"}

// tenant is the tenant of a request. Requests without a valid key belong to one tenant, "".
var tenant = stint.KeyFunc(func(r *http.Request) (string, error) { return tenants[r.Header.Get("X-API-Key")], nil })

func main() {
	second := flag.Duration("second", time.Second, "how long a second of the output lasts")
	flag.Parse()
	fmt.Println("queue,second,app,shop,bulk")
	for _, fair := range []bool{false, true} {
		run(os.Stdout, fair, *second)
	}
}

// limiter lets eight requests run, and sixteen wait.
func limiter(fair bool) *stint.Limiter {
	opts := []stint.SlotOption{stint.WithQueue(16)}
	if fair {
		opts = append(opts, stint.WithFairQueue(tenant))
	}
	return stint.Must(stint.New(stint.Concurrency(8, opts...), stint.WithKey(stint.Global())))
}

// load is the callers of a tenant. Each sends one request after the other.
type load struct {
	key      string
	callers  int
	from, to int // the seconds in which they send
}

const seconds = 30

var loads = []load{{"key-1", 2, 0, seconds}, {"key-2", 4, 0, seconds}, {"key-3", 40, 5, 25}}

// run serves all tenants for 30 seconds, and prints how many slots each tenant held in each.
func run(out io.Writer, fair bool, second time.Duration) {
	var held usage
	service := stinthttp.Middleware(limiter(fair))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		start := time.Now()
		time.Sleep(second / 5) // its work
		held.add(tenants[r.Header.Get("X-API-Key")], time.Since(start))
	}))
	start := time.Now()
	var all sync.WaitGroup
	for _, l := range loads {
		for caller := range l.callers {
			all.Go(func() {
				time.Sleep(time.Duration(l.from)*second + time.Duration(caller)*second/50)
				for time.Since(start) < time.Duration(l.to)*second {
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("X-API-Key", l.key)
					w := httptest.NewRecorder()
					if service.ServeHTTP(w, r); w.Code != http.StatusOK {
						time.Sleep(second) // Retry-After
					}
				}
			})
		}
	}
	name := map[bool]string{false: "arrival", true: "fair"}[fair]
	for n := 1; n <= seconds; n++ {
		time.Sleep(time.Until(start.Add(time.Duration(n) * second)))
		slots := func(tenant string) float64 { return held.take(tenant).Seconds() / second.Seconds() }
		fmt.Fprintf(out, "%s,%d,%.1f,%.1f,%.1f\n", name, n, slots("app"), slots("shop"), slots("bulk"))
	}
	all.Wait()
}

// usage is how long each tenant has held slots.
type usage struct {
	mu   sync.Mutex
	held map[string]time.Duration
}

func (u *usage) add(tenant string, d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.held == nil {
		u.held = map[string]time.Duration{}
	}
	u.held[tenant] += d
}

// take returns how long a tenant has held slots since it was asked last.
func (u *usage) take(tenant string) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	d := u.held[tenant]
	delete(u.held, tenant)
	return d
}
