package stintotel_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stint-go/stint"
)

// spoken are the events of one request's span.
func spoken(t *testing.T, w *watched, r *http.Request) (events []string) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	ctx, span := trace.NewTracerProvider(trace.WithSpanProcessor(recorder)).Tracer("test").Start(t.Context(), "request")
	w.Serve(httptest.NewRecorder(), r.WithContext(ctx), func(http.ResponseWriter, *http.Request) {})
	span.End()
	for _, e := range recorder.Ended()[0].Events() {
		events = append(events, fmt.Sprintf("%s{%s}", e.Name, short(attribute.NewSet(e.Attributes...))))
	}
	return events
}

func TestSpans(t *testing.T) {
	name := stint.WithName("x")
	for _, tt := range []struct {
		name string
		opts []stint.Option
		key  string
		want string
	}{
		{"admitted at once", []stint.Option{stint.Rate(5, time.Minute, name)}, "a", ""},
		{"denied", []stint.Option{stint.Rate(1, time.Minute, name)}, "a", "stint.denied{limit=x,limiter=api,outcome=denied,retry_after=60}"},
		{"waited for its turn", []stint.Option{stint.Rate(1, time.Second, name, stint.WithMaxWait(time.Minute))}, "a",
			"stint.waiting{limit=x,limiter=api,queued=1} stint.waited{limit=x,limiter=api,outcome=admitted,wait.duration=1}"},
		{"a dry run", []stint.Option{stint.Rate(1, time.Minute, name, stint.WithDryRun(true))}, "a", "stint.dry_run_denied{limit=x,limiter=api,retry_after=60}"},
		{"no key, in a dry run", []stint.Option{stint.Rate(1, time.Minute, name, stint.WithDryRun(true))}, "", "stint.dry_run_denied{limit=x,limiter=api,outcome=empty_key}"},
		{"no key", []stint.Option{stint.Rate(1, time.Minute, name)}, "", "stint.denied{limit=x,limiter=api,outcome=empty_key}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, nil, tt.opts...)
				w.admit(1, "a")
				if got := strings.ReplaceAll(strings.Join(spoken(t, w, request(tt.key)), " "), "{stint.", "{"); got != tt.want {
					t.Errorf("%s\nwant\n%s", got, tt.want)
				}
			})
		})
	}
}

// Nothing of a request shows: neither its key, its path nor what a key function says.
func TestNothingOfTheRequest(t *testing.T) {
	secret := func(r *http.Request) (string, error) {
		if key := r.Header.Get("Key"); !strings.HasSuffix(key, "-bad") {
			return key, nil
		}
		return "", fmt.Errorf("no such token: %s", r.Header.Get("Key"))
	}
	w := watch(t, nil, stint.WithRoute("/users/{id}", stint.Rate(1, time.Hour, stint.WithKey(stint.KeyFunc(secret))), stint.Ban(1, time.Hour, stint.WithBanFor(time.Hour), stint.WithKey(stint.KeyFunc(secret)))))
	var said []string
	for _, key := range []string{"s3cret", "s3cret", "s3cret", "s3cret-bad"} {
		said = append(said, spoken(t, w, request(key))...)
	}
	said = append(said, w.read(nil)...)
	text := strings.Join(said, "\n")
	if len(said) < 6 || !strings.Contains(text, "key_failed") || !strings.Contains(text, "/users/{id}") {
		t.Fatalf("said too little:\n%s", text)
	}
	for _, private := range []string{"s3cret", "/users/42"} {
		if strings.Contains(text, private) {
			t.Errorf("%q shows:\n%s", private, text)
		}
	}
}
