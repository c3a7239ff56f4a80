package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

func TestUnmatched(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		want     map[string]string // by pattern, or limit, part of the text
	}{
		{[]string{"/a/", "/a/{$}", "POST /a/b", "GET /a/{x}", "GET api.test/a/b", "/{x}/b/{rest...}"}, nil},
		{[]string{"GET /", "POST /{x}", "/a"}, nil},
		{[]string{"/a/", "/a/{$}", "/a/{x}", "/a/{x}/{rest...}"}, map[string]string{"/a/": `all of its requests match "/a/{$}" or "/a/{x}" or "/a/{x}/{rest...}" first`}},
		{[]string{"/a/{rest...}", "/a/{x}", "/a/{x}/{y}", "/a/{x}/{y}/{rest...}", "/a/{$}"}, nil}, // /a/x/ is left
		{[]string{"/a/{rest...}", "/a/{x}", "/a/{x}/{$}", "/a/{x}/{y}", "/a/{x}/{y}/{rest...}", "/a/{$}"}, map[string]string{"/a/{rest...}": "all of its requests match"}},
		{[]string{"GET /a/", "/a/{$}", "/a/{x}", "/a/{x}/"}, nil}, // which conflict, so there is no limiter
		{[]string{"/a%2Fb", "/é", "/any", "api.test./x", "[::1]/x", "PURGE /x", "/{x}/", "CONNECT /y", "/100%25", "/{any}/any2"}, nil},
		{[]string{"/"}, map[string]string{"own": `it applies to no request: all requests match "/", with only or exempt`}},
		{[]string{"GET /", "api.test/"}, nil},
	} {
		options := []stint.Option{stint.Rate(1, time.Second, stint.WithName("own")), stint.WithKey(stint.RemoteIP()), stint.WithoutWarnings()}
		for i, p := range tt.patterns {
			options = append(options, stint.WithRoute(p, stint.Only(stint.Rate(1, time.Second, stint.WithName(fmt.Sprint("route-", i))))))
		}
		l, err := stint.New(options...)
		if err != nil {
			if tt.want != nil || !strings.Contains(err.Error(), "conflicts") {
				t.Errorf("%q: %v", tt.patterns, err)
			}
			continue
		}
		found := replay.Unmatched(l)
		if len(found) != len(tt.want) {
			t.Errorf("%q: %+v, want %v", tt.patterns, found, tt.want)
			continue
		}
		for _, f := range found {
			if want, ok := tt.want[f.Route+f.Limit]; !ok || !strings.Contains(f.Text, want) {
				t.Errorf("%q: %+v, want %v", tt.patterns, f, tt.want)
			}
		}
	}
	// What holds beside more specific routes is charged.
	l := stint.Must(stint.New(stint.Rate(1, time.Second, stint.WithName("own")), stint.WithKey(stint.RemoteIP()), stint.WithRoute("/", stint.WithFixedCost(1)),
		stint.WithRoute("/a/", stint.Quota(9, stint.Daily)), stint.WithRoute("/a/{$}", stint.WithFixedCost(1)), stint.WithRoute("/a/{x}", stint.WithFixedCost(1)), stint.WithRoute("/a/{x}/{rest...}", stint.WithFixedCost(1))))
	if found := replay.Unmatched(l); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	if found := replay.Unmatched(stint.Must(stint.New(stint.Rate(1, time.Second), stint.WithKey(stint.RemoteIP())))); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}
