package field

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// denial sets the fields that only a denial has. Retry-After is the latest of all
// denied items and of outer limiters, and at least a second, as for slots, whose time
// isn't known. Jitter comes on top.
func (w *Writer) denial(h http.Header) {
	if !w.outermost {
		forget(h)
	}
	w.set(h, cacheControl, noStore, false)
	latest := time.Duration(0)
	for i := range w.Items {
		if it := &w.Items[i]; it.Denied {
			latest = max(latest, it.Retry, time.Second)
		}
	}
	if latest < Never {
		if w.Jitter > 0 {
			latest += rand.N(w.Jitter + 1)
		}
		w.retryAfter(h, seconds(latest))
	}
}

// retryAfter sets Retry-After unless it is already as late.
func (w *Writer) retryAfter(h http.Header, n int64) {
	if had, there := outerNumber(h, retryAfter); !there || had < n {
		w.number(h, retryAfter, n)
	}
}

// noStore is the Cache-Control of a response that caches must not keep.
const noStore = "no-store"

// forget drops the fields that describe a resource, because a denial isn't a copy of
// it, and those that tell a CDN, which heeds them before Cache-Control, to keep it.
func forget(h http.Header) {
	for _, key := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Expires", "Cdn-Cache-Control", "Surrogate-Control"} {
		delete(h, key)
	}
}

// NotStored marks a response as not being a copy of the resource: caches must not keep
// it, and fields that describe the resource are removed.
func NotStored(h http.Header) {
	forget(h)
	h[composed[cacheControl]] = []string{noStore}
}

// LeaveOut removes the fields that say what is left and when to come back.
func LeaveOut(h http.Header) {
	for _, field := range [...]uint8{limitLine, xLimit, xRemaining, xReset, retryAfter} {
		delete(h, composed[field])
	}
}

// Served makes the header of a denial that of an answer: the client has nothing to retry, and
// caches must not keep it unless its handler says otherwise.
func Served(h http.Header) {
	delete(h, composed[retryAfter])
	NotStored(h)
}

// Failed sets the fields of a denial that isn't a limit's. With status 503 it tells
// the client to try again in a second.
func Failed(h http.Header, status int) {
	NotStored(h)
	if n, there := outerNumber(h, retryAfter); status == http.StatusServiceUnavailable && (!there || n < 1) {
		h[composed[retryAfter]] = []string{"1"}
	}
}

// Problem says why requests are denied (RFC 9457).
type Problem struct {
	status int
	head   string // the body up to the names of limits
}

// The problems caused by limits.
var (
	QuotaExceeded   = problem(http.StatusTooManyRequests, problemTypes+"quota-exceeded", "Quota exceeded")
	ReducedCapacity = problem(http.StatusServiceUnavailable, problemTypes+"temporary-reduced-capacity", "Capacity temporarily reduced")
	AbnormalUsage   = problem(http.StatusTooManyRequests, problemTypes+"abnormal-usage-detected", "Abnormal usage detected")
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// Blank returns the problem that a status alone describes.
func Blank(status int) Problem { return problem(status, "about:blank", http.StatusText(status)) }

func problem(status int, kind, title string) Problem {
	return Problem{status, `{"type":"` + kind + `","title":"` + title + `","status":` + strconv.Itoa(status)}
}

// Status returns the status of the responses.
func (p Problem) Status() int { return p.status }

// bodies are Writers reused for their text and slots.
var bodies = sync.Pool{New: func() any { return new(Writer) }}

// Write answers r with the problem. violated are the names of the limits that deny,
// which need no escaping.
func (p Problem) Write(w http.ResponseWriter, r *http.Request, violated ...string) {
	body := bodies.Get().(*Writer)
	defer bodies.Put(body)
	body.problem(w, r, p, violated)
}

// Problem is Problem.Write for the limits whose Items are denied.
func (w *Writer) Problem(to http.ResponseWriter, r *http.Request, p Problem) {
	var few [4]string
	violated := few[:0]
	for i := range w.Items {
		if it := &w.Items[i]; it.Denied {
			violated = append(violated, it.Name)
		}
	}
	w.problem(to, r, p, violated)
}

func (w *Writer) problem(to http.ResponseWriter, r *http.Request, p Problem, violated []string) {
	slot := w.slot()
	slot[0] = "application/problem+json"
	to.Header()["Content-Type"] = slot
	to.WriteHeader(p.status)
	if r.Method == http.MethodHead {
		return
	}
	b := append(w.text[:0], p.head...)
	sep := `,"violated-policies":["`
	for _, name := range violated {
		b = append(append(b, sep...), name...)
		sep = `","`
	}
	if len(violated) > 0 {
		b = append(b, `"]`...)
	}
	b = append(b, "}\n"...)
	_, _ = to.Write(b) // if the client has left, the error doesn't matter
	if w.text = b; cap(b) > keptText {
		w.text = nil
	}
}
