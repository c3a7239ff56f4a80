package wire

import (
	"slices"
	"strconv"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// HeldLease is a lease that the server is asked to renew.
type HeldLease struct {
	ID      store.LeaseID
	Release store.Charge // which releases it
	Slots   int64        // that it holds
	Seen    int64        // the server's instant when it was taken or last renewed
}

// Renewal is a call that renews leases.
type Renewal struct {
	Keys   []string
	Leases [][]HeldLease // by key
	Size   int           // leases in all
	args   []any
}

// Add adds leases on a key.
func (r *Renewal) Add(key string, leases []HeldLease) {
	r.Keys = append(r.Keys, key)
	r.Leases = append(r.Leases, leases)
	r.Size += len(leases)
	r.args = append(r.args, len(leases))
	var slotsAndSeen []byte
	for i := range leases {
		l := &leases[i]
		r.args = append(r.args, l.ID[:])
		slotsAndSeen = append(strconv.AppendInt(slotsAndSeen, l.Slots, 10), ':')
		slotsAndSeen = append(strconv.AppendInt(slotsAndSeen, l.Seen, 10), ' ')
	}
	r.args = append(r.args, slotsAndSeen)
}

// KeysWithResets returns each key, and behind it the one that remembers its reset.
func (r *Renewal) KeysWithResets() []string {
	keys := make([]string, 0, 2*len(r.Keys))
	for _, key := range r.Keys {
		keys = append(keys, key, ResetKey(key))
	}
	return keys
}

// Never is an instant before all others.
const Never = -1 << 52

// Args returns the script that renews the leases and its arguments, with room before them. It
// enters no lease after the instant until.
func (r *Renewal) Args(t Times, until int64, room int) (*scripts.Script, []any) {
	args := append(make([]any, room), t.Clock, t.Lease.lasts, strconv.FormatInt(until, 10))
	return scripts.Renew(), append(args, r.args...)
}

// LostLease is a lease that the server hadn't any more.
type LostLease struct {
	HeldLease
	Key string
	// Done is what the server has done about it (renew.lua): "entered", "reset" or "late".
	Done string
}

// Answer returns the leases that were lost.
func (r *Renewal) Answer(reply any) (now int64, lost []LostLease, err error) {
	words, now, err := instantOf(reply)
	if err != nil {
		return 0, nil, err
	}
	for ; len(words) >= 3; words = words[3:] {
		n, _ := words[0].(int64)
		id, _ := words[1].(string)
		done, _ := words[2].(string)
		if n < 1 || int(n) > len(r.Keys) {
			continue
		}
		leases := r.Leases[n-1]
		if i := slices.IndexFunc(leases, func(l HeldLease) bool { return string(l.ID[:]) == id }); i >= 0 {
			lost = append(lost, LostLease{leases[i], r.Keys[n-1], done})
		}
	}
	return now, lost, nil
}
