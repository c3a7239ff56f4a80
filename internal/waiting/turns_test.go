package waiting_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/waiting"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/memstore"
)

// Those who leave while others of their time haven't come to the line yet leave turns that
// stand between those of the others. However many there are, three settlements give back all:
// the one that finds out, the one that frees the last, and one for the rest.
func TestGivingBackInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := store.NewLimit(store.Spec{Name: "r", Algorithm: store.LeakyBucket, Units: 10, Period: time.Second, Queue: 30})
		if err != nil {
			t.Fatal(err)
		}
		st := memstore.New()
		settles := 0
		settle := func(ctx context.Context, charges []store.Charge) []store.Result {
			settles++
			time.Sleep(time.Millisecond)
			results := make([]store.Result, len(charges))
			if err := st.Settle(ctx, charges, results); err != nil {
				t.Error(err)
			}
			return results
		}
		var reserved []waiting.Part
		for range 21 {
			charges, results := []store.Charge{{Key: "k", Limit: limit, Cost: 1}}, make([]store.Result, 1)
			if err := st.Take(t.Context(), charges, results); err != nil || !results[0].OK {
				t.Fatal(err, results[0])
			}
			charges[0].Receipt = results[0].Receipt
			reserved = append(reserved, waiting.Part{Charge: charges[0], Wait: results[0].Delay})
		}
		var lines waiting.Turns
		come := func(first int) (all []*waiting.Turn) {
			for i := first; i < len(reserved); i += 2 {
				turn, _, _ := lines.Join(t.Context(), reserved[i:i+1], nil, waiting.Rank{}, time.Time{}, settle)
				all = append(all, turn)
			}
			return all
		}
		leave := func(all []*waiting.Turn) {
			for _, turn := range all {
				go turn.Leave(t.Context())
			}
			synctest.Wait()
		}
		leave(come(1)) // the first passes at once
		leave(come(2))
		time.Sleep(50 * time.Millisecond) // before any of the turns
		if n := lines.Lines(); n != 0 || settles > 3 {
			t.Errorf("%d lines are left after %d settlements, want none after 3", n, settles)
		}
	})
}
