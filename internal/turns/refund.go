package turns

import (
	"time"

	"github.com/stint-go/stint/internal/inside"
	"github.com/stint-go/stint/store"
)

// refund is turns on their way back to the store. Those of a line stand together, its last turn first.
type refund struct {
	turns  []turn
	lines  []*line // of the turns
	settle Settle
}

// maxRefund is how many turns of a line go back in one call of the store.
const maxRefund = 500

// addSurplus moves turns that no call waits for from their line to the refund. Only one refund of a
// line is under way at a time, so that its turns reach the store in their order.
func (r *refund) addSurplus(l *line) {
	if l.refunding {
		l.moreSurplus = true
		return
	}
	for n := 0; l.surplus() > 0 && n < maxRefund; n++ {
		last := &l.reserved[len(l.reserved)-1]
		back := *last
		if surplus := l.surplus(); back.receipt.Cost <= surplus {
			l.reserved = l.reserved[:len(l.reserved)-1]
		} else {
			back.receipt.Cost = surplus
			last.at, last.receipt = l.earlier(last.at, surplus), inside.Without(l.charge.Limit, last.receipt, surplus)
		}
		l.reservedUnits -= back.receipt.Cost
		l.refunding = true
		r.turns, r.lines, r.settle = append(r.turns, back), append(r.lines, l), l.settle
	}
	l.moreSurplus = l.surplus() > 0
}

// charges returns the charges that give the turns back.
func (r *refund) charges() []store.Charge {
	charges := make([]store.Charge, len(r.turns))
	for i, t := range r.turns {
		charges[i] = r.lines[i].charge
		charges[i].Receipt = t.receipt
	}
	return charges
}

// finish records the results of settling the charges. The lines keep the turns that the store hasn't
// taken back, because others stand behind them: turns of this process, whose answer is on its way, or
// of another one. Without results the outcome is unknown. Then no turn is inserted again, so that none
// is used twice.
func (r *refund) finish(results []store.Result, now time.Time) {
	for i := range results {
		l, t := r.lines[i], r.turns[i]
		kept := inside.Standing(l.charge.Limit, t.receipt, results[i].Receipt)
		// Lines of a cost have whole turns only: a part is of no use. Cost is 0 for lines that divide turns.
		usable := l.key.cost == 0 || kept.Cost == l.key.cost
		if kept.Cost > 0 && usable && (t.at.After(now) || len(l.waiting) > 0) {
			l.insert(turn{t.at, kept})
		}
	}
	for _, l := range r.lines {
		l.refunding = false
	}
}
