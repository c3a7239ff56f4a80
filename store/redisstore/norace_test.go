//go:build !race

package redisstore

const underRace = false
