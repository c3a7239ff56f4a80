package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10

// bodyTimeout is how long a client may take to send a body.
const bodyTimeout = 10 * time.Second

// problem is the answer to a request that isn't decided (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Token takes the place of the request's, which is used up.
	Token string `json:"token,omitempty"`
}

func newProblem(status int, format string, args ...any) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	writeJSON(w, p.Status, p)
}

// writeJSON writes a body. Its Content-Type is JSON unless that is set already.
func writeJSON(w http.ResponseWriter, status int, body any) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

// readBody reads the JSON body of a POST.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, newProblem(http.StatusMethodNotAllowed, "write POST")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, newProblem(http.StatusUnsupportedMediaType, "write Content-Type: application/json")
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout)) // a server has deadlines
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = c.SetReadDeadline(time.Time{})
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, newProblem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, "the body can't be read")
	}
	return data, nil
}

// field is a field of a request's body: to is a *string, a *int64 or a *[]string.
type field struct {
	name     string
	to       any
	optional bool
}

func required(name string, to any) field { return field{name: name, to: to} }
func optional(name string, to any) field { return field{name: name, to: to, optional: true} }

// parseBody reads a JSON object that has these fields and no others.
func parseBody(data []byte, all ...field) *problem {
	if !utf8.Valid(data) || !json.Valid(data) {
		return newProblem(http.StatusBadRequest, "the body isn't JSON in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if start, _ := d.Token(); start != json.Delim('{') {
		return newProblem(http.StatusBadRequest, "the body isn't a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		name, _ := d.Token()
		text, _ := name.(string)
		i := slices.IndexFunc(all, func(f field) bool { return f.name == text })
		switch {
		case i < 0:
			return newProblem(http.StatusBadRequest, "unknown field %.80q: write %s", text, fieldNames(all))
		case seen[text]:
			return newProblem(http.StatusBadRequest, "the field %q is given twice", text)
		}
		seen[text] = true
		if p := all[i].read(d); p != nil {
			return p
		}
	}
	for _, f := range all {
		if !f.optional && !seen[f.name] {
			return newProblem(http.StatusBadRequest, "the field %q is missing", f.name)
		}
	}
	return nil
}

func fieldNames(all []field) string {
	var names []string
	for _, f := range all {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// read reads the value of the field.
func (f *field) read(d *json.Decoder) *problem {
	value, _ := d.Token()
	switch to := f.to.(type) {
	case *string:
		text, ok := value.(string)
		if !ok {
			return newProblem(http.StatusBadRequest, "%s isn't a string", f.name)
		}
		// Half of a surrogate pair is read as this character, too, so different keys would be equal.
		if strings.ContainsRune(text, utf8.RuneError) {
			return newProblem(http.StatusBadRequest, "%s has the character U+FFFD, or half of a surrogate pair", f.name)
		}
		*to = text
	case *int64:
		number, ok := value.(json.Number)
		n, err := strconv.ParseInt(number.String(), 10, 64)
		if !ok || err != nil {
			return newProblem(http.StatusBadRequest, "%s isn't a whole number: write digits only, such as 10", f.name)
		}
		*to = n
	case *[]string:
		if value != json.Delim('[') {
			return newProblem(http.StatusBadRequest, "%s isn't a list of names", f.name)
		}
		for d.More() {
			item, _ := d.Token()
			text, ok := item.(string)
			if !ok {
				return newProblem(http.StatusBadRequest, "%s isn't a list of names", f.name)
			}
			*to = append(*to, text)
		}
		_, _ = d.Token()   // ]
		if len(*to) == 0 { // without names, all limits would be meant
			return newProblem(http.StatusBadRequest, "%s is empty: write some names, or leave it out for all", f.name)
		}
	}
	return nil
}

// milliseconds rounds a duration up. The longest are as good as endless.
func milliseconds(d time.Duration) int64 {
	if d > math.MaxInt64-time.Millisecond {
		return math.MaxInt64 / int64(time.Millisecond)
	}
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}
