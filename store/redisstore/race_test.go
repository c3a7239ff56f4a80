//go:build race

package redisstore

// sync.Pool drops things at random under the detector.
const underRace = true
