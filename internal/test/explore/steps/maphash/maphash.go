// Package maphash is hash/maphash for code that is explored: see package steps. There is
// one seed, so that every run finds keys in the same places.
package maphash

import "hash/maphash"

// Seed is maphash.Seed.
type Seed = maphash.Seed

var seed = maphash.MakeSeed()

// MakeSeed returns the one seed.
func MakeSeed() Seed { return seed }

// String is maphash.String.
func String(seed Seed, s string) uint64 { return maphash.String(seed, s) }

// Comparable is maphash.Comparable.
func Comparable[T comparable](seed Seed, v T) uint64 { return maphash.Comparable(seed, v) }
