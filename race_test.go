//go:build race

package stint_test

const raceEnabled = true
