// Command slots runs jobs from anywhere in a fleet, at most so many at a time
// for each customer. A slot is leased in Redis: it lasts as long as the job,
// hours if need be, and that of a process that dies comes free by itself.
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

	rdb := redis.NewClient(&redis.Options{Addr: *server, ContextTimeoutEnabled: true})
	if err := rdb.Ping(context.Background()).Err(); err != nil {
		log.Fatalf("no Redis at %s, so nothing to count the fleet's jobs in: start one with redis-server (%v)", *server, err)
	}
	shared := redisstore.New(rdb)
	defer shared.Close()
	slots := stint.Must(limits(shared))

	fmt.Printf("slots runs %d jobs of %s, two at a time in all processes on the Redis at %s: start another meanwhile\n", *jobs, *customer, *server)
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

// limits: two jobs at a time. Those that find no slot wait, up to a minute.
// While the Redis is away no job begins: nobody could say how many run.
func limits(shared store.Store) (*stint.Limiter, error) {
	return stint.New(
		stint.Concurrency(2, stint.WithName("jobs"), stint.WithMaxWait(time.Minute)),
		stint.WithKey(stint.GivenKey()), // the customer that Wait is given
		stint.WithStore(shared),
		stint.WithFailurePolicy(stint.FailClosed),
	)
}

// run does the job once it has a slot, and gives the slot back, whatever happens
// to the job.
func run(ctx context.Context, slots *stint.Limiter, customer string, job func()) error {
	permit, err := slots.Wait(ctx, customer, 1)
	if err != nil {
		return err
	}
	defer permit.Done()
	job()
	return nil
}
