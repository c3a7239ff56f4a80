package policy

import (
	"maps"
	"net/http"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
)

// cost reads a number, or the name of a function registered in Go.
func (d *decoder) cost(n *yaml.Node) stint.ChargeOption {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		if f := d.config.costs[n.Value]; f != nil {
			return stint.WithCost(f)
		}
		if _, err := parseInt(n.Value); err != nil {
			d.unknown(n, "unknown cost %q: %s; functions are registered with policy.WithCostFunc", n.Value,
				suggestion(n.Value, append(slices.Sorted(maps.Keys(d.config.costs)), "a number")))
			return nil
		}
	}
	v, ok := d.integer(n, "cost", 1)
	if !ok {
		return nil
	}
	return stint.WithFixedCost(v)
}

const settleExample = "failed-only or {refund-on: [304, 503]}"

// settleForms are the ways to compute a cost from the response that need more than a
// word.
var settleForms = []field[func(*http.Request, int, int64) int64]{
	{"refund-on", func(d *decoder, n *yaml.Node, to *func(*http.Request, int, int64) int64) {
		items, ok := d.list(n, "refund-on", "[304, 503]")
		if ok && len(items) == 0 {
			d.bad(n, "refund-on names no status: write some, such as [304, 503]")
			return
		}
		var statuses []int
		for _, item := range items {
			status, good := d.integer(item, "a status", 200)
			if good && status > 599 {
				d.bad(item, "%d isn't the status of a response: write 200 to 599", status)
				good = false
			}
			statuses = append(statuses, int(status))
			ok = ok && good
		}
		if ok {
			*to = stint.RefundOn(statuses...)
		}
	}},
}

// settle reads how the cost is computed from the response. A name stands for one option
// wherever it appears: limits with the same name share one call of the function per
// request.
func (d *decoder) settle(n *yaml.Node) stint.ChargeOption {
	var cost func(*http.Request, int, int64) int64
	if n.Kind != yaml.ScalarNode {
		if object(d, n, "settle", settleExample, settleForms, &cost) && len(n.Content) == 0 {
			d.bad(n, "settle is empty: write %s", settleExample)
		}
		if cost == nil {
			return nil
		}
		return stint.WithSettle(cost)
	}
	if o := d.settles[n.Value]; o != nil {
		return o
	}
	cost = d.config.settles[n.Value]
	if n.Value == "failed-only" {
		cost = stint.FailedOnly
	}
	if cost == nil {
		candidates := append(slices.Sorted(maps.Keys(d.config.settles)), "failed-only", "{refund-on: [...]}")
		d.unknown(n, "unknown settle %q: %s; functions are registered with policy.WithSettleFunc", n.Value,
			suggestion(n.Value, candidates))
		return nil
	}
	o := stint.WithSettle(cost)
	d.settles[n.Value] = o
	return o
}
