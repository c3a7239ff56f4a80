package store

import "encoding/binary"

// Lease returns the LeaseID with the number n, for stores that number their leases.
func Lease(n uint64) (id LeaseID) {
	binary.BigEndian.PutUint64(id[:8], n)
	return id
}
