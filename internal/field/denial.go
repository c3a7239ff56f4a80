package field

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// setDenial sets the fields that only a denial has. Retry-After is the latest of all
// denied items and of outer limiters, and at least a second, as for slots, whose time
// isn't known. Jitter comes on top.
func (w *Writer) setDenial(h http.Header) {
	if !w.outermost {
		removeRepresentation(h)
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
		w.setRetryAfter(h, seconds(latest))
	}
}

// setRetryAfter sets Retry-After unless it is already as late.
func (w *Writer) setRetryAfter(h http.Header, n int64) {
	if previous, found := outerNumber(h, retryAfter); !found || previous < n {
		w.setNumber(h, retryAfter, n)
	}
}

// noStore is the Cache-Control of a response that caches must not keep.
const noStore = "no-store"

// removeRepresentation drops the fields that describe a resource, because a denial isn't a copy of
// it, and those that tell a CDN, which heeds them before Cache-Control, to keep it.
func removeRepresentation(h http.Header) {
	for _, key := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified", "Expires",
		"Cdn-Cache-Control", "Surrogate-Control"} {
		delete(h, key)
	}
}

// SetNotStored marks a response as not being a copy of the resource: caches must not keep
// it, and fields that describe the resource are removed.
func SetNotStored(h http.Header) {
	removeRepresentation(h)
	h[fieldNames[cacheControl]] = []string{noStore}
}

// RemoveLimitFields removes the fields with the remaining units and Retry-After.
func RemoveLimitFields(h http.Header) {
	for _, field := range [...]uint8{rateLimitField, xLimit, xRemaining, xReset, retryAfter} {
		delete(h, fieldNames[field])
	}
}

// SetServed makes the header of a denial that of an answer: the client has nothing to retry, and
// caches must not keep it unless its handler says otherwise.
func SetServed(h http.Header) {
	delete(h, fieldNames[retryAfter])
	SetNotStored(h)
}

// SetFailed sets the fields of a denial for another reason than a limit. With status 503 it tells
// the client to try again in a second.
func SetFailed(h http.Header, status int) {
	SetNotStored(h)
	if n, found := outerNumber(h, retryAfter); status == http.StatusServiceUnavailable && (!found || n < 1) {
		h[fieldNames[retryAfter]] = []string{"1"}
	}
}

// Problem says why requests are denied (RFC 9457).
type Problem struct {
	status int
	head   string // the body up to the names of limits
	detail string // or ""
}

// The problems caused by limits.
var (
	QuotaExceeded   = newProblem(http.StatusTooManyRequests, problemTypes+"quota-exceeded", "Quota exceeded")
	ReducedCapacity = newProblem(http.StatusServiceUnavailable, problemTypes+"temporary-reduced-capacity",
		"Capacity temporarily reduced")
	AbnormalUsage = newProblem(http.StatusTooManyRequests, problemTypes+"abnormal-usage-detected",
		"Abnormal usage detected")
)

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// BlankProblem returns the problem that a status alone describes.
func BlankProblem(status int) Problem {
	return newProblem(status, "about:blank", http.StatusText(status))
}

// WithDetail returns the problem with a detail, which needs no escaping.
func (p Problem) WithDetail(text string) Problem {
	p.detail = text
	return p
}

func newProblem(status int, kind, title string) Problem {
	return Problem{status: status, head: `{"type":"` + kind + `","title":"` + title + `","status":` + strconv.Itoa(status)}
}

// Status returns the status of the responses.
func (p Problem) Status() int { return p.status }

// bodies are Writers reused for their text and slots.
var bodies = sync.Pool{New: func() any { return new(Writer) }}

// Write answers r with the problem. denying are the names of the limits that deny,
// which need no escaping.
func (p Problem) Write(w http.ResponseWriter, r *http.Request, denying ...string) {
	body := bodies.Get().(*Writer)
	defer bodies.Put(body)
	body.writeProblem(w, r, p, denying)
}

// Problem is Problem.Write for the limits whose Items are denied.
func (w *Writer) Problem(to http.ResponseWriter, r *http.Request, p Problem) {
	var room [4]string
	denying := room[:0]
	for i := range w.Items {
		if it := &w.Items[i]; it.Denied {
			denying = append(denying, it.Name)
		}
	}
	w.writeProblem(to, r, p, denying)
}

func (w *Writer) writeProblem(to http.ResponseWriter, r *http.Request, p Problem, denying []string) {
	slot := w.slot()
	slot[0] = "application/problem+json"
	to.Header()["Content-Type"] = slot
	to.WriteHeader(p.status)
	if r.Method == http.MethodHead {
		return
	}
	b := append(w.text[:0], p.head...)
	if p.detail != "" {
		b = append(append(append(b, `,"detail":"`...), p.detail...), '"')
	}
	sep := `,"violated-policies":["`
	for _, name := range denying {
		b = append(append(b, sep...), name...)
		sep = `","`
	}
	if len(denying) > 0 {
		b = append(b, `"]`...)
	}
	b = append(b, "}\n"...)
	_, _ = to.Write(b) // if the client has left, the error doesn't matter
	if w.text = b; cap(b) > keptText {
		w.text = nil
	}
}
