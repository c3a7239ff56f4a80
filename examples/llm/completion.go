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
)

// prompt estimates the tokens of the prompt: about one for every four bytes of English.
func (c *completion) prompt() int64 { return int64(len(c.Prompt))/4 + 1 }

// most is the most the request can cost.
func (c *completion) most() int64 { return c.prompt() + c.MaxTokens }

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
// the body. So the body is bounded here, and max_tokens too, or a client could reserve
// a minute of everybody's tokens.
func readCompletion(next http.Handler) http.Handler {
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
		r = r.WithContext(context.WithValue(r.Context(), completionKey{}, c))
		// Tell the model what has been reserved.
		body, _ = json.Marshal(map[string]any{"prompt": c.Prompt, "max_tokens": c.MaxTokens, "stream": true})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, r)
	})
}
