package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	tick = time.Second
	// A stream ends after streamed, and the browser asks for the next: so a viewer is
	// authorized again, and a server that shuts down doesn't wait for long.
	streamed = 30 * time.Second
	// mostViewers is how many streams there are at once.
	mostViewers = 50
)

// fragment is a part of the page that changes.
type fragment struct {
	ID   string        `json:"id"`
	HTML template.HTML `json:"html"`
}

// view is the data of the page's template.
type view struct {
	*page
	Parts []fragment
	Found *found
	Names []string
}

// fragments returns the page's parts. All viewers share one rendering for half a tick.
func (p *page) fragments() []fragment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parts != nil && time.Since(p.rendered) < tick/2 {
		return p.parts
	}
	var parts []fragment
	for i, b := range p.boards {
		v := p.limiter(b)
		for _, name := range [...]string{"head", "traffic", "limits", "who", "live"} {
			var html bytes.Buffer
			if err := templates.ExecuteTemplate(&html, name, v); err != nil {
				panic(err) // a template of this package is wrong
			}
			parts = append(parts, fragment{ID: name + strconv.Itoa(i), HTML: template.HTML(html.String())})
		}
	}
	p.parts, p.rendered = parts, time.Now()
	return parts
}

func (p *page) show(w http.ResponseWriter, status int, v *view) {
	v.page, v.Parts = p, p.fragments()
	for i, b := range p.boards {
		v.Names = append(v.Names, b.title(i))
	}
	var html bytes.Buffer
	if err := templates.ExecuteTemplate(&html, "page.html", v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html.Bytes())
}

// stream sends the parts that have changed at each tick.
func (p *page) stream(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	out := http.NewResponseController(w)
	ticker, end := time.NewTicker(tick), time.After(streamed)
	defer ticker.Stop()
	sent := map[string]template.HTML{}
	for {
		_ = out.SetWriteDeadline(time.Now().Add(5 * tick)) // a server's WriteTimeout is for answers that end
		changed := slices.DeleteFunc(slices.Clone(p.fragments()), func(f fragment) bool { return sent[f.ID] == f.HTML })
		data, err := json.Marshal(changed)
		if err == nil {
			_, err = fmt.Fprintf(w, "retry: 1000\ndata: %s\n\n", data)
		}
		if err == nil {
			err = out.Flush()
		}
		if err != nil {
			return
		}
		for _, f := range changed {
			sent[f.ID] = f.HTML
		}
		select {
		case <-ticker.C:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (p *page) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers >= mostViewers {
		return false
	}
	p.viewers++
	return true
}

func (p *page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewers--
}
