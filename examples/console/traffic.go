package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"
)

// shop takes as long as its work does, and longer when there is more of it.
func shop(w http.ResponseWriter, r *http.Request) {
	load := working.Add(1)
	defer working.Add(-1)
	work := time.Duration(10+rand.IntN(20)+3*max(0, int(load)-8)) * time.Millisecond
	if r.URL.Path == "/reports" {
		work = time.Duration(200+rand.IntN(400)) * time.Millisecond
	}
	select {
	case <-time.After(work):
		fmt.Fprintln(w, "done")
	case <-r.Context().Done():
	}
}

// working is how many requests the shop is working on.
var working atomic.Int64

// A customer requests a path so many times a second on average, several times at once.
type customer struct {
	key, path string
	rate      float64
	atOnce    int
}

// The customers: one asks for too much, one ignores that it was told to slow down, one
// tries passwords, one comes in bursts. A key may be any text.
var customers = []customer{
	{"alice", "/items", 8, 1},
	{"bob", "/items", 35, 1},
	{"carol", "/items", 12, 1},
	{"dave", "/login", 0.3, 1},
	{"mallory", "/login", 3, 1},
	{"erin", "/reports", 4, 1},
	{"frank", "/items", 1, 30},
	{`<b onclick="alert(1)">eve</b>`, "/items", 25, 1},
}

// traffic never ends: each customer's requests come in waves.
func traffic(url string) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	begun := time.Now()
	for i, c := range customers {
		go func() {
			for {
				wave := 1 + 0.6*math.Sin(time.Since(begun).Seconds()/20+float64(i))
				time.Sleep(time.Duration(rand.ExpFloat64() / (c.rate * wave) * float64(time.Second)))
				for range c.atOnce {
					go ask(client, c.key, url+c.path)
				}
			}
		}()
	}
}

func ask(client *http.Client, key, url string) {
	r, err := http.NewRequestWithContext(context.Background(), "GET", url, nil)
	if err != nil {
		return
	}
	r.Header.Set("X-Api-Key", key)
	if res, err := client.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}
