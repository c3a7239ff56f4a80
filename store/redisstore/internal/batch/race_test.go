//go:build race

package batch

// sync.Pool drops things at random under the detector.
const underRace = true
