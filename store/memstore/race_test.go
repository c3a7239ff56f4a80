//go:build race

package memstore

const RaceDetector = true
