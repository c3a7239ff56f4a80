//go:build !race

package memstore

const RaceDetector = false
