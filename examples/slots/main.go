// Command slots runs jobs from anywhere in a fleet, with a maximum number at a time for
// each customer. A slot is leased in Redis. It lasts as long as the job, for hours if
// need be; if the process dies, the lease expires.
//
//	go run ./examples/slots -customer acme -jobs 5
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

func main() {
	server := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
	customer := flag.String("customer", "acme", "whose jobs to run")
	jobs := flag.Int("jobs", 5, "how many")
	flag.Parse()

	rdb := redis.NewClient(&redis.Options{Addr: *server, DialerRetries: 1})
	if err := rdb.Ping(context.Background()).Err(); err != nil {
		log.Fatalf("no Redis at %s, so nothing to count the fleet's jobs in: start one with redis-server (%v)", *server, err)
	}
	shared := redisstore.New(rdb, redisstore.WithTimeout(10*time.Second)) // a job has time
	defer shared.Close()
	slots := stint.Must(limits(shared))

	fmt.Printf("slots runs %d jobs of %s, two at a time in all processes on the Redis at %s: start another meanwhile\n",
		*jobs, *customer, *server)
	var all sync.WaitGroup
	for i := range *jobs {
		all.Go(func() {
			fmt.Println("job", i, "waits for a slot")
			err := run(context.Background(), slots, *customer, func() {
				fmt.Println("job", i, "runs")
				time.Sleep(time.Second)
			})
			if err != nil {
				log.Print("job ", i, ": ", err)
				return
			}
			fmt.Println("job", i, "has ended")
		})
	}
	all.Wait()
}

// limits allows two jobs at a time. Others wait for a slot, up to a minute. While the
// Redis is down, no job starts, since the number that run isn't known.
func limits(shared store.Store) (*stint.Limiter, error) {
	return stint.New(
		stint.Concurrency(2, stint.WithName("jobs"), stint.WithMaxWait(time.Minute)),
		stint.WithKey(stint.GivenKey()), // the customer, passed to Wait
		stint.WithStore(shared),
		stint.WithFailurePolicy(stint.FailClosed),
	)
}

// run does the job once it has a slot, and releases the slot whatever happens to the
// job.
func run(ctx context.Context, slots *stint.Limiter, customer string, job func()) error {
	permit, err := slots.Wait(ctx, customer, 1)
	if err != nil {
		return err
	}
	defer permit.Done()
	job()
	return nil
}
