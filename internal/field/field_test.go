package field_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/field"
)

// item returns the item of a limit of units an hour with so much left.
func item(name string, units, left int64) field.Item {
	return field.Item{
		Name: name, Capacity: units, Policy: field.Policy(name, units, time.Hour),
		Remaining: left, More: time.Minute, Reset: 90 * time.Second,
	}
}

// denying is the item of a limit that denies for so long.
func denying(name string, retry time.Duration) field.Item {
	it := item(name, 1, 0)
	it.Denied, it.Retry = true, retry
	return it
}

// hidden is it of a limit that is shown in no field.
func hidden(it field.Item) field.Item {
	it.Policy = ""
	return it
}

// header is a header of lines "Key: value".
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, l := range lines {
		key, value, _ := strings.Cut(l, ": ")
		h.Add(key, value)
	}
	return h
}

func lines(h http.Header) (all []string) {
	for key, values := range h {
		for _, v := range values {
			all = append(all, key+": "+v)
		}
	}
	slices.Sort(all)
	return all
}

func TestWrite(t *testing.T) {
	const both = field.RateLimit | field.XRateLimit
	unknown := item("slots", 2, 1)
	unknown.Name, unknown.Capacity, unknown.Policy, unknown.More = "slots", 2, field.Policy("slots", 2, 0), -1
	beyond := item("beyond", math.MaxInt64, math.MaxInt64)
	beyond.More, beyond.Reset = time.Nanosecond, -1
	for _, tt := range []struct {
		name   string
		h      http.Header
		styles field.Styles
		policy string
		items  []field.Item
		want   []string
	}{
		{"one", header(), field.RateLimit, "", []field.Item{item("a", 9, 4)}, []string{`Ratelimit-Policy: "a";q=9;w=3600`, `Ratelimit: "a";r=4;t=60`}},
		{"a known policy", header(), field.RateLimit, "known", []field.Item{item("a", 9, 4)}, []string{`Ratelimit-Policy: known`, `Ratelimit: "a";r=4;t=60`}},
		{"slots", header(), both, "", []field.Item{unknown}, []string{`Ratelimit-Policy: "slots";q=2;qu="concurrent-requests"`, `Ratelimit: "slots";r=1`,
			"X-Ratelimit-Limit: 2", "X-Ratelimit-Remaining: 1", "X-Ratelimit-Reset: 90"}},
		{"no larger integers than there are", header(), both, "", []field.Item{beyond}, []string{`Ratelimit-Policy: "beyond";q=999999999999999;w=3600`,
			`Ratelimit: "beyond";r=999999999999999;t=1`,
			"X-Ratelimit-Limit: 999999999999999", "X-Ratelimit-Remaining: 999999999999999", "X-Ratelimit-Reset: 0"}},
		{"the least left of several", header(), both, "", []field.Item{item("a", 9, 4), hidden(item("b", 8, 0)), item("c", 7, 3)}, []string{
			`Ratelimit-Policy: "a";q=9;w=3600, "c";q=7;w=3600`, `Ratelimit: "a";r=4;t=60, "c";r=3;t=60`,
			"X-Ratelimit-Limit: 7", "X-Ratelimit-Remaining: 3", "X-Ratelimit-Reset: 90"}},
		{"nothing to show", header("X-Kept: 1"), both, "", []field.Item{hidden(item("a", 9, 4))}, []string{"X-Kept: 1"}},
		{"no style", header("X-Kept: 1"), 0, "known", []field.Item{item("a", 9, 4)}, []string{"X-Kept: 1"}},
		{"a name twice", header(), field.RateLimit, "", []field.Item{item("a", 9, 4), item("b", 5, 5), item("a", 8, 3), item("a", 7, 3), item("a", 6, 4)},
			[]string{`Ratelimit-Policy: "b";q=5;w=3600, "a";q=8;w=3600`, `Ratelimit: "b";r=5;t=60, "a";r=3;t=60`}},
		{"beside an outer limiter's", header(`RateLimit: "o";r=1`, `RateLimit-Policy: "o";q=1;w=1`), field.RateLimit, "known", []field.Item{item("a", 9, 4)},
			[]string{`Ratelimit-Policy: "o";q=1;w=1`, `Ratelimit-Policy: known`, `Ratelimit: "o";r=1`, `Ratelimit: "a";r=4;t=60`}},
		{"beside a policy of somebody else", header(`RateLimit-Policy: "o";q=1;w=1`), field.RateLimit, "", []field.Item{item("a", 9, 4)},
			[]string{`Ratelimit-Policy: "o";q=1;w=1`, `Ratelimit-Policy: "a";q=9;w=3600`, `Ratelimit: "a";r=4;t=60`}},
		{"under an outer limiter's name, with less", header(`RateLimit: "o";r=1, "a";r=5;t=1`, `RateLimit-Policy: "o";q=1;w=1, "a";q=6;w=1`), field.RateLimit, "known",
			[]field.Item{item("a", 9, 4)}, []string{`Ratelimit-Policy: "o";q=1;w=1`, `Ratelimit-Policy: known`, `Ratelimit: "o";r=1`, `Ratelimit: "a";r=4;t=60`}},
		{"under an outer limiter's name, with as much", header(`RateLimit: "a";r=4`, `RateLimit-Policy: "a";q=6;w=1`), field.RateLimit, "known",
			[]field.Item{item("a", 9, 4), item("b", 2, 1)}, []string{`Ratelimit-Policy: "a";q=6;w=1`, `Ratelimit-Policy: "b";q=2;w=3600`, `Ratelimit: "a";r=4`, `Ratelimit: "b";r=1;t=60`}},
		{"as all are outdone", header(`RateLimit: "a";r=4`, `RateLimit-Policy: "a";q=6;w=1`), field.RateLimit, "known", []field.Item{item("a", 9, 4)},
			[]string{`Ratelimit-Policy: "a";q=6;w=1`, `Ratelimit: "a";r=4`}},
		{"an outer limiter's lines that are all outdone", header(`RateLimit: "a";r=5`, `RateLimit-Policy: "a";q=6;w=1`), field.RateLimit, "known", []field.Item{item("a", 9, 4)},
			[]string{`Ratelimit-Policy: known`, `Ratelimit: "a";r=4;t=60`}},
		{"an X-RateLimit field with less", header("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset: 1"), field.XRateLimit, "", []field.Item{item("a", 9, 4)},
			[]string{"X-Ratelimit-Limit: 5", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: 1"}},
		{"an X-RateLimit field with more", header("X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 5", "X-RateLimit-Reset: 1"), field.XRateLimit, "", []field.Item{item("a", 9, 4)},
			[]string{"X-Ratelimit-Limit: 9", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: 90"}},
		{"an X-RateLimit field that is no number", header("X-RateLimit-Remaining: many"), field.XRateLimit, "", []field.Item{item("a", 9, 4)},
			[]string{"X-Ratelimit-Limit: 9", "X-Ratelimit-Remaining: 4", "X-Ratelimit-Reset: 90"}},

		{"the latest of those that deny", header(), 0, "", []field.Item{denying("a", time.Second), hidden(denying("b", 1500*time.Millisecond)), item("c", 1, 1)},
			[]string{"Cache-Control: no-store", "Retry-After: 2"}},
		{"at least a second", header(), 0, "", []field.Item{denying("a", 0)}, []string{"Cache-Control: no-store", "Retry-After: 1"}},
		{"never", header(), 0, "", []field.Item{denying("a", time.Second), denying("b", field.Never)}, []string{"Cache-Control: no-store"}},
		{"sooner than an outer limiter's", header("Retry-After: 2"), 0, "", []field.Item{denying("a", time.Second)}, []string{"Cache-Control: no-store", "Retry-After: 2"}},
		{"later than an outer limiter's", header("Retry-After: 2"), 0, "", []field.Item{denying("a", 3*time.Second)}, []string{"Cache-Control: no-store", "Retry-After: 3"}},
		{"no copy of the resource", header("Cache-Control: public", `ETag: "x"`, "Expires: 0", "Last-Modified: x", "Content-Length: 5", "Content-Encoding: gzip", "X-Kept: 1"),
			field.RateLimit | field.XRateLimit, "known", []field.Item{denying("a", time.Second)}, []string{
				"Cache-Control: no-store", "Retry-After: 1", `Ratelimit-Policy: known`, `Ratelimit: "a";r=0;t=60`,
				"X-Kept: 1", "X-Ratelimit-Limit: 1", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 90"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var w field.Writer
			for range 2 { // of a new Writer, and of one that has written the same before
				h := tt.h.Clone()
				w.Items = slices.Clone(tt.items)
				w.Write(h, tt.styles, tt.policy)
				slices.Sort(tt.want)
				if got := lines(h); !slices.Equal(got, tt.want) {
					t.Fatalf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
				}
			}
		})
	}
}

// What one response was told stays when the Writer writes the next, and when
// an application adds to it.
func TestWriteAgain(t *testing.T) {
	var w field.Writer
	var all []http.Header
	for i := range 100 {
		w.Items = []field.Item{item("a", 9, int64(i))}
		h := header()
		if w.Write(h, field.RateLimit, "known"); i%2 == 0 {
			h.Add("RateLimit", "more")
			h.Add("RateLimit-Policy", "more")
		}
		all = append(all, h)
	}
	for i, h := range all {
		want := []string{fmt.Sprintf(`"a";r=%d;t=60`, i), "more"}
		if got := h.Values("RateLimit"); !slices.Equal(got, want[:2-i%2]) || h.Get("RateLimit-Policy") != "known" {
			t.Fatalf("response %d: %q", i, got)
		}
	}
}

func TestAllocations(t *testing.T) {
	h := http.Header{}
	var w field.Writer
	for _, tt := range []struct {
		name  string
		items []field.Item
	}{
		{"a limit", []field.Item{item("a", 9, 4)}},
		{"two limits", []field.Item{item("a", 9, 4), item("b", 9, 4)}},
		{"a denial", []field.Item{denying("a", time.Hour)}},
	} {
		got := testing.AllocsPerRun(1000, func() {
			clear(h)
			w.Items = append(w.Items[:0], tt.items...)
			w.Write(h, field.RateLimit, "")
		})
		if got > 0 { // what is cut off larger pieces isn't one
			t.Errorf("%s: %v allocations, want none", tt.name, got)
		}
	}
}

func TestPolicy(t *testing.T) {
	if got, want := field.Policy("a", 7, 1500*time.Millisecond), `"a";q=7;w=2`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestFailed(t *testing.T) {
	for _, tt := range []struct {
		status int
		h      http.Header
		want   []string
	}{
		{500, header("ETag: x"), []string{"Cache-Control: no-store"}},
		{503, header("Content-Length: 3"), []string{"Cache-Control: no-store", "Retry-After: 1"}},
		{503, header("Retry-After: 7"), []string{"Cache-Control: no-store", "Retry-After: 7"}},
		{503, header("Retry-After: 0"), []string{"Cache-Control: no-store", "Retry-After: 1"}},
	} {
		if field.SetFailed(tt.h, tt.status); !slices.Equal(lines(tt.h), tt.want) {
			t.Errorf("%d: %q, want %q", tt.status, lines(tt.h), tt.want)
		}
	}
}

func TestProblem(t *testing.T) {
	for range 2 { // with what the first has left behind
		for _, method := range []string{"GET", "HEAD"} {
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "text/html")
			field.QuotaExceeded.Write(w, httptest.NewRequest(method, "/", nil), "a", "b")
			if got := w.Header()["Content-Type"]; w.Code != 429 || !slices.Equal(got, []string{"application/problem+json"}) {
				t.Errorf("%s: %d, %q", method, w.Code, got)
			}
			if method == "HEAD" {
				if w.Body.Len() > 0 {
					t.Errorf("a body for HEAD: %s", w.Body)
				}
				continue
			}
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, w.Body)
			}
			if want := "map[status:429 title:Quota exceeded type:https://iana.org/assignments/http-problem-types#quota-exceeded violated-policies:[a b]]"; fmt.Sprint(got) != want {
				t.Errorf("%v, want %s", got, want)
			}
		}
	}
	w := httptest.NewRecorder()
	field.BlankProblem(403).Write(w, httptest.NewRequest("GET", "/", nil))
	if got, want := w.Body.String(), `{"type":"about:blank","title":"Forbidden","status":403}`+"\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
