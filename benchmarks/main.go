// Command benchmarks compares store/redisstore with other limiters on Redis, and
// with what Redis and its client do without any: on one server that it starts
// itself, in turns, so that what the machine does besides hits all of them alike.
//
//	cd benchmarks && go run . -rounds 5 -time 1s
//
// It is a module of its own, so that what it compares with never reaches the
// go.sum of a user.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often each is measured; medians are shown")
	each := flag.Duration("time", time.Second, "how long each takes in a round")
	program := flag.String("redis-server", "redis-server", "the server to start")
	flag.Parse()
	if err := run(*rounds, *each, *program); err != nil {
		log.Fatal(err)
	}
}

func run(rounds int, each time.Duration, program string) error {
	server, err := startServer(program)
	if err != nil {
		return err
	}
	defer server.stop()
	subjects, end := newSubjects(server)
	defer end()

	results := map[load]map[string][]sample{}
	for range rounds {
		for _, l := range loads {
			if results[l] == nil {
				results[l] = map[string][]sample{}
			}
			for _, s := range subjects {
				one, err := measure(server, s, l, each)
				if err != nil {
					return fmt.Errorf("%s, %v: %w", s.name, l, err)
				}
				results[l][s.name] = append(results[l][s.name], one)
			}
		}
	}
	bytes := map[string]float64{}
	for _, s := range subjects {
		if s.limits {
			if bytes[s.name], err = keyBytes(server, s); err != nil {
				return err
			}
		}
	}
	report(os.Stdout, subjects, results, bytes)
	return mixtures(context.Background(), os.Stdout, server, rounds, each)
}
