package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore"
)

// subject is one thing that is measured.
type subject struct {
	name string
	// pad makes the keys in the server as long as the longest of them.
	pad  string
	call func(ctx context.Context, key string) error

	idle bool // it is of interest with one caller only

	// store makes a key that stays, to see how much memory it takes; nil if the
	// subject has none of its own.
	store func(ctx context.Context, key string) error

	// rest, if there is one, puts back what calls have taken. It is called every
	// now and then and isn't measured.
	rest func(ctx context.Context) error
	// charges is how many limits a decision has, of which the first is the rate;
	// 0 if it isn't.
	charges int
	// parts are the subjects that this one calls in turns.
	parts []string
}

// The limit of all of them: 10 a second, and so large a burst that nothing is
// denied and every call writes.
const (
	perSecond = 10
	burst     = 1_000_000_000
)

// The subjects that ratios are about.
const (
	stintName   = "stint"
	peerName    = "redis_rate"
	evalshaName = "EVALSHA of stint's script"
	againName   = "the same EVALSHA again"
)

var errDenied = errors.New("denied, though nothing here should be")

func newSubjects(s *server) (subjects []subject, end func(), err error) {
	plain := s.client()
	piped, err := plain.AutoPipeline()
	if err != nil {
		return nil, nil, err
	}
	mine := redisstore.New(plain, redisstore.WithTimeout(5*time.Second))
	rate := limit(store.Spec{Name: "rate", Units: perSecond, Period: time.Second, Burst: 10_000_000})
	evalsha, err := plainCall(s, plain, rate)
	if err != nil {
		return nil, nil, err
	}
	allow := redis_rate.Limit{Rate: perSecond, Period: time.Second, Burst: burst}

	take := func(ctx context.Context, key string) error {
		charges := [1]store.Charge{{Key: key, Limit: rate, Cost: 1}}
		var results [1]store.Result
		err := mine.Take(ctx, charges[:], results[:])
		if err == nil && !results[0].OK {
			return errDenied
		}
		return err
	}
	subjects = []subject{
		{name: stintName, call: take, store: take},
		{name: evalshaName, call: evalsha},
		{name: againName, call: evalsha, idle: true},
		{name: "PING", call: func(ctx context.Context, _ string) error { return plain.Ping(ctx).Err() }},
		{name: "INCR", call: func(ctx context.Context, key string) error { return plain.Incr(ctx, "incr:"+key).Err() }},
	}
	for _, client := range []struct {
		name string
		redis.UniversalClient
	}{{"", plain}, {", AutoPipeline", piped}} {
		theirs := redis_rate.NewLimiter(client)
		allowing := func(l redis_rate.Limit) func(context.Context, string) error {
			return func(ctx context.Context, key string) error {
				result, err := theirs.Allow(ctx, key, l)
				if err == nil && result.Allowed == 0 {
					return errDenied
				}
				return err
			}
		}
		db, err := ulule.NewStore(client)
		if err != nil {
			return nil, nil, err
		}
		window := limiter.New(db, limiter.Rate{Period: time.Hour, Limit: burst})
		get := func(ctx context.Context, key string) error {
			result, err := window.Get(ctx, key)
			if err == nil && result.Reached {
				return errDenied
			}
			return err
		}
		rates := subject{name: peerName + client.name, pad: "..........", call: allowing(allow)}
		windows := subject{name: "ulule/limiter" + client.name, pad: ".......", call: get}
		if client.name == "" {
			// Of a rate so slow that its keys outlive the filling.
			rates.store = allowing(redis_rate.Limit{Rate: 1, Period: time.Hour, Burst: burst})
			windows.store = get
		}
		subjects = append(subjects, rates, windows)
	}
	return subjects, func() {
		mine.Close()
		piped.Close()
		plain.Close()
	}, nil
}

// plainCall sends the command by which redisstore decides one charge of 1 on rate, by
// the client alone. It is overheard, not laid out here, so that it stays the very
// same call whatever the script comes to be told.
func plainCall(s *server, client *redis.Client, rate *store.Limit) (func(context.Context, string) error, error) {
	const name = "user-00000"
	overheard := s.client()
	defer overheard.Close()
	var ear ear
	overheard.AddHook(&ear)
	teller := redisstore.New(overheard, redisstore.WithTimeout(5*time.Second))
	defer teller.Close()
	// Twice: the server may have to be told the script, which is another command.
	for range 2 {
		charges := [1]store.Charge{{Key: name, Limit: rate, Cost: 1}}
		if err := teller.Take(context.Background(), charges[:], make([]store.Result, 1)); err != nil {
			return nil, err
		}
	}
	heard := ear.last
	if len(heard) < 4 || heard[0] != "evalsha" || heard[2] != 1 {
		return nil, errors.New("a decision is not one EVALSHA of one key")
	}
	sha, args := heard[1].(string), slices.Clone(heard[4:])
	before, after, ok := strings.Cut(heard[3].(string), name)
	if !ok {
		return nil, errors.New("a key in the server doesn't hold the caller's")
	}
	return func(ctx context.Context, key string) error {
		return client.EvalSha(ctx, sha, []string{before + key + after}, args...).Err()
	}, nil
}

// ear is a hook that keeps the last command.
type ear struct{ last []any }

func (*ear) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *ear) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e.last = slices.Clone(cmd.Args())
		for i, arg := range e.last {
			if text, ok := arg.(fmt.Stringer); ok { // of this call alone
				e.last[i] = text.String()
			}
		}
		return next(ctx, cmd)
	}
}

func (*ear) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func limit(s store.Spec) *store.Limit {
	l, err := store.NewLimit(s)
	if err != nil {
		panic(err)
	}
	return l
}
