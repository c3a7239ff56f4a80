package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// model makes up words, one at a time, as server-sent events. It stops when its story
// ends or max_tokens are written, and then reports what it has cost.
func model(every time.Duration) http.Handler {
	const story = "Once upon a time there was a stream that ran to the sea , and nobody had to wait for its end . "
	words := strings.SplitAfter(strings.Repeat(story, 5), " ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked completion
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if asked.Prompt == "" {
			http.Error(w, "no prompt", http.StatusUnprocessableEntity)
			return
		}
		words := words[:min(int(asked.MaxTokens), len(words)-1)]
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		send := func(event any) {
			data, _ := json.Marshal(event)
			fmt.Fprintf(w, "data: %s\n\n", data)
			_ = out.Flush()
		}
		for _, word := range words {
			select {
			case <-time.After(every):
				send(map[string]string{"text": word})
			case <-r.Context().Done():
				return
			}
		}
		send(map[string]any{"usage": usage{Prompt: int64(len(strings.Fields(asked.Prompt))), Completion: int64(len(words))}})
		fmt.Fprint(w, "data: [DONE]\n\n")
	})
}
