// Package day writes the access log of a made-up day, for examples. It is a model, and the
// same each time:
//
//   - 2,000 visitors, each with an address, come by day more than by night: one visit in 50
//     seconds at four in the morning, and in ten at four in the afternoon. A visit is 1 to 6
//     pages, about 20 s apart. A page is one request for it, and 4 to 12 for what it shows, within
//     two seconds.
//   - Five programs call the API. Each sends 40 requests within a second, every five minutes.
//   - A scraper reads the shop from one o'clock to two in the afternoon, five requests a second.
//   - Someone guesses passwords from three to half past three in the night, one every two
//     seconds.
//   - From four to five past four in the afternoon, four of ten requests fail with 503.
//
// Requests take 40 ms on average.
package day

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// request is a line of the log.
type request struct {
	at, took             time.Duration // since midnight
	address, method, uri string
	status               int
}

// Write writes the log, in nginx's JSON of the variables that package replay knows.
func Write(w io.Writer) error {
	rnd := rand.New(rand.NewPCG(2026, 3))
	all := slices.Concat(visitors(rnd), programs(rnd), scraper(rnd), guesser(rnd))
	for i := range all {
		r := &all[i]
		r.took = time.Millisecond + time.Duration(rnd.ExpFloat64()*40)*time.Millisecond
		r.at = r.at.Truncate(time.Millisecond)
		if outage := 16 * time.Hour; r.at >= outage && r.at < outage+5*time.Minute && rnd.IntN(10) < 4 {
			r.status = 503
		}
	}
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.at+a.took, b.at+b.took) })
	midnight := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	out := bufio.NewWriter(w)
	for _, r := range all {
		end := midnight.Add(r.at + r.took).UnixMilli()
		fmt.Fprintf(out, `{"msec":"%d.%03d","request_time":"%.3f","remote_addr":%q,"request_method":%q,"request_uri":%q,"host":"shop.example","status":"%d","body_bytes_sent":"%d"}`+"\n",
			end/1000, end%1000, r.took.Seconds(), r.address, r.method, r.uri, r.status, 200+len(r.uri)*37)
	}
	return out.Flush()
}

func visitors(rnd *rand.Rand) (all []request) {
	for at := time.Duration(0); at < 24*time.Hour; {
		// Visits a second, most at four in the afternoon and fewest twelve hours before.
		rate := 0.06 + 0.04*math.Cos((at.Hours()-16)/24*2*math.Pi)
		at += time.Duration(rnd.ExpFloat64() / rate * float64(time.Second))
		client := rnd.IntN(2000)
		address, page := fmt.Sprintf("198.51.%d.%d", 100+client/250, 1+client%250), at
		for range 1 + rnd.IntN(6) {
			all = append(all, request{at: page, address: address, method: "GET", uri: fmt.Sprintf("/items/%d", rnd.IntN(500)),
				status: 200})
			for range 4 + rnd.IntN(9) {
				later := time.Duration(rnd.IntN(2000)) * time.Millisecond
				all = append(all, request{at: page + later, address: address, method: "GET",
					uri: fmt.Sprintf("/static/%d.js", rnd.IntN(40)), status: 200})
			}
			page += time.Duration(rnd.ExpFloat64() * float64(20*time.Second))
		}
	}
	return slices.DeleteFunc(all, func(r request) bool { return r.at >= 24*time.Hour })
}

func programs(rnd *rand.Rand) (all []request) {
	for minute := 0; minute < 24*60; minute += 5 {
		for program := range 5 {
			for range 40 {
				at := time.Duration(minute)*time.Minute + time.Duration(rnd.IntN(1000))*time.Millisecond
				all = append(all, request{at: at, address: fmt.Sprintf("203.0.113.%d", 10+program), method: "GET",
					uri: fmt.Sprintf("/api/stock/%d", rnd.IntN(500)), status: 200})
			}
		}
	}
	return all
}

func scraper(rnd *rand.Rand) (all []request) {
	for i := range 3600 * 5 {
		at := 13*time.Hour + time.Duration(i)*200*time.Millisecond + time.Duration(rnd.IntN(20))*time.Millisecond
		all = append(all,
			request{at: at, address: "192.0.2.66", method: "GET", uri: fmt.Sprintf("/items/%d", i%500), status: 200})
	}
	return all
}

func guesser(rnd *rand.Rand) (all []request) {
	for i := range 900 {
		at := 3*time.Hour + time.Duration(i)*2*time.Second + time.Duration(rnd.IntN(100))*time.Millisecond
		all = append(all, request{at: at, address: "192.0.2.13", method: "POST", uri: "/login", status: 401})
	}
	return all
}
