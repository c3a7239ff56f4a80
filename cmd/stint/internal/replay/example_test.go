package replay_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// accessLines are what nginx has written.
const accessLines = `192.0.2.7 - - [10/Mar/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl/8"
192.0.2.7 - - [10/Mar/2026:12:00:01 +0000] "GET /b HTTP/1.1" 200 12 "-" "curl/8"
198.51.100.3 - - [10/Mar/2026:12:00:01 +0000] "GET /a HTTP/1.1" 200 12 "-" "curl/8"
192.0.2.7 - - [10/Mar/2026:12:00:02 +0000] "GET /c HTTP/1.1" 200 12 "-" "curl/8"
`

func ExampleRun() {
	requests, err := replay.Read("access.log", strings.NewReader(accessLines))
	if err != nil {
		log.Fatal(err)
	}
	newLimiter := func() (*stint.Limiter, error) {
		return stint.New(stint.Rate(2, time.Minute, stint.WithName("per-client")), stint.WithKey(stint.RemoteIP()))
	}
	report, err := replay.Run(newLimiter, requests)
	if err != nil {
		log.Fatal(err)
	}
	s := report.Strictest()
	fmt.Println(s.Denied, "of", s.Requests, "denied")
	for _, k := range s.Top {
		fmt.Println(k.Key, "by", k.Limit, "at", k.First.Format(time.TimeOnly))
	}
	// Output:
	// 1 of 4 denied
	// 192.0.2.7 by per-client at 12:00:02
}
