package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// send sends requests to every route, for so long.
func send(base string, load time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), load)
	defer cancel()
	var wg sync.WaitGroup
	var clients atomic.Int64
	for _, sort := range []struct {
		line    string
		senders int
		pause   time.Duration
		many    bool // clients
	}{
		{"GET /search", 2, 30 * time.Millisecond, false},
		{"GET /search", 1, 20 * time.Millisecond, true},
		{"POST /jobs", 8, 10 * time.Millisecond, false},
		{"POST /tokens", 1, 50 * time.Millisecond, false},
		{"GET /file", 1, 100 * time.Millisecond, false},
		{"GET /backend", 30, 50 * time.Millisecond, false},
	} {
		method, path, _ := strings.Cut(sort.line, " ")
		for range sort.senders {
			wg.Go(func() {
				for ctx.Err() == nil {
					client := "me"
					if sort.many {
						client = fmt.Sprint("client-", clients.Add(1))
					}
					ask(ctx, method, base+path, client)
					time.Sleep(sort.pause)
				}
			})
		}
	}
	wg.Wait()
}

func ask(ctx context.Context, method, url, client string) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return
	}
	r.Header.Set("X-Client", client)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
}

// misread reports a policy file with a mistake every few seconds, as package policy does.
func misread(lim *stint.Limiter, load time.Duration) {
	for end := time.Now().Add(load); time.Now().Before(end); time.Sleep(5 * time.Second) {
		lim.ReportPolicy("limits.yaml", errors.New("limits.yaml:3:7: a rate is a number and a time"))
	}
}

// unread asks for a decision every few seconds whose limits can't be read.
func unread(lim *stint.Limiter, load time.Duration) {
	for end := time.Now().Add(load); time.Now().Before(end); time.Sleep(2 * time.Second) {
		_ = lim.Allow(context.Background(), "me", 1) // it passes
	}
}

// troubled is a store as it is on a bad day: of every 10 seconds it is slow in one,
// and gone for three. Then it loses a lease.
type troubled struct {
	store.Store
	store.Observers
	lost atomic.Int64 // the second that it was last lost in
}

var errGone = errors.New("the store is gone")

func trouble() error {
	switch time.Now().Unix() % 10 {
	case 4:
		time.Sleep(60 * time.Millisecond)
	case 5, 6, 7:
		return errGone
	}
	return nil
}

func (s *troubled) Take(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := trouble(); err != nil {
		if now := time.Now().Unix(); s.lost.Swap(now) != now {
			s.Tell(store.Notice{Kind: store.LeaseLost, Limit: charges[0].Limit, Key: charges[0].Key})
		}
		return err
	}
	return s.Store.Take(ctx, charges, results)
}

func (s *troubled) Settle(ctx context.Context, charges []store.Charge, results []store.Result) error {
	if err := trouble(); err != nil {
		return err
	}
	return s.Store.Settle(ctx, charges, results)
}
