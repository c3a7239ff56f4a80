//go:build race

package memory

const RaceDetector = true
