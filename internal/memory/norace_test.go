//go:build !race

package memory

const RaceDetector = false
