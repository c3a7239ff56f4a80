//go:build race

package store_test

// The steps run in one goroutine each, ten times slower under the detector.
const underRace = true
