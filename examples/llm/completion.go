package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// completion is a request to the model and its outcome.
type completion struct {
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`

	charged  int64  // what it has been charged so far
	streamed int64  // tokens that have passed to the client
	usage    *usage // the model's own count, at the end of its stream
	begun    bool   // the model has begun to answer
}

// usage is the model's report at the end.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

const (
	defaultTokens = 256
	mostTokens    = 4096
	mostBody      = 1 << 20

	usualTokens = 64 // of an answer, on average
	step        = 16 // tokens by which a charge is raised
)

// prompt estimates the tokens of the prompt: about one for every four bytes of English.
func (c *completion) prompt() int64 { return int64(len(c.Prompt))/4 + 1 }

// estimate returns what such a request usually costs, but no more than its limits can hold: a request that costs more
// than that would never pass.
func (c *completion) estimate(capacity int64) int64 {
	return min(c.prompt()+min(c.MaxTokens, usualTokens), capacity)
}

// used is the request's cost so far. If it fails before the model answers, it costs
// nothing.
func (c *completion) used() int64 {
	switch {
	case c.usage != nil:
		return c.usage.Prompt + c.usage.Completion
	case c.begun: // cut off
		return c.prompt() + c.streamed
	}
	return 0
}

type completionKey struct{}

func completionOf(r *http.Request) *completion {
	return r.Context().Value(completionKey{}).(*completion)
}

// readCompletion parses the body before the request is decided, because its cost is in
// the body. So the body is bounded here. capacity is the most that its limits can hold.
func readCompletion(next http.Handler, capacity int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
		if err != nil {
			http.Error(w, "the request is too long", http.StatusRequestEntityTooLarge)
			return
		}
		c := &completion{MaxTokens: defaultTokens}
		if err := json.Unmarshal(body, c); err != nil || c.MaxTokens < 1 || c.MaxTokens > mostTokens {
			http.Error(w, "write JSON with a prompt, and max_tokens from 1 to 4096", http.StatusBadRequest)
			return
		}
		c.charged = c.estimate(capacity)
		r = r.WithContext(context.WithValue(r.Context(), completionKey{}, c))
		body, _ = json.Marshal(map[string]any{"prompt": c.Prompt, "max_tokens": c.MaxTokens, "stream": true})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}
