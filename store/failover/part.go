package failover

import (
	"fmt"
	"sync"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// WithProcesses divides the limits among n processes while the secondary decides. Use it if the secondary is in the
// memory of each process. Each rate and quota then has an n-th of its units and of its burst there, rounded up, and
// each Concurrency an n-th of its slots. Bans aren't divided, and a Bandwidth keeps the burst that its chunks need.
// Queues aren't divided either: as many requests wait in each process as without WithProcesses, and each waits up to
// n times as long, or for its WithMaxWait, because the part gives an n-th of the units. A cost above the part is
// charged as the whole part, because it would never pass otherwise. A Settle that raises a cost above the part makes
// a debt, as always. After a request whose cost was above the part, its first Permit.Extend also charges the units
// that were left out, up to the part. Decisions and header fields show the part.
//
// Write the number of processes that a load balancer spreads each client over. If it sends a client to one process
// only, that client gets an n-th of its limit. If there are more processes than n, each of them admits an n-th more.
// In a period, n processes admit the limit and up to n-1 units more, and what each capped cost exceeds its part by.
// So at worst, if each cost is the whole limit, they admit n times the limit: of a limit of 10,000 and n = 8, eight
// requests of 4,096 units pass, one in each process.
//
// n is from 1 to 1,000,000. stint.New returns an error for other values, and for a failover without a secondary. By
// default, limits aren't divided: each process admits up to the whole limit.
func WithProcesses(n int) Option {
	return option(func(s *Store) {
		s.require(1 <= n && n <= mostProcesses, fmt.Sprintf("WithProcesses(%d)", n),
			"pass the number of processes, from 1 to 1000000, or leave it out")
		s.require(s.secondary != nil, fmt.Sprintf("WithProcesses(%d) without a secondary", n),
			"pass memstore.New() as the secondary, or leave WithProcesses out")
		s.parts.n = int64(n)
	})
}

const mostProcesses = 1_000_000

// parts are the parts of limits that the secondary decides by.
type parts struct {
	n  int64 // of processes; up to 1: limits aren't divided
	mu sync.Mutex
	of map[*store.Limit]*store.Limit
}

// mostParts bounds the parts that are kept. Limits that a function makes for each request are made anew.
const mostParts = 4096

func (p *parts) divides() bool { return p.n > 1 }

// part returns the part of a limit.
func (p *parts) part(l *store.Limit) *store.Limit {
	p.mu.Lock()
	defer p.mu.Unlock()
	part := p.of[l]
	if part == nil {
		part = inside.Part(l, p.n)
		if p.of == nil || len(p.of) >= mostParts {
			p.of = map[*store.Limit]*store.Limit{}
		}
		p.of[l] = part
	}
	return part
}

// divide returns charges on the parts of their limits. If capCosts is set, no charge costs more than its part.
func (p *parts) divide(charges []store.Charge, capCosts bool) []store.Charge {
	if !p.divides() {
		return charges
	}
	divided := make([]store.Charge, len(charges))
	for i := range charges {
		c := charges[i]
		part := p.part(c.Limit)
		if capCosts {
			c.Cost = inside.PartCost(&charges[i], part)
		}
		c.Limit = part
		divided[i] = c
	}
	return divided
}

// show has the results of divided charges say that they are by a part.
func (p *parts) show(charges, divided []store.Charge, results []store.Result) {
	if !p.divides() {
		return
	}
	for i := range results {
		if r := &results[i]; divided[i].Limit != charges[i].Limit {
			below := int64(max(r.Processes, 1)) // a store below has made parts of this part
			r.Processes = uint32(min(p.n*below, mostProcesses))
		}
	}
}
