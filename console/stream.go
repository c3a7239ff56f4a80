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
	streamFor = 30 * time.Second
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
	Process string
	Parts   []fragment
	Found   *keyResult
}

// openedView is the limiter, or one of its limits, that a viewer has opened.
type openedView struct {
	limiter int
	limit   string // "": the limiter
}

// openedBy returns the view that a request has opened.
func (p *page) openedBy(r *http.Request) (s openedView, open bool) {
	q := r.URL.Query()
	i := slices.IndexFunc(p.boards, func(b *board) bool { return b.id == q.Get("limiter") })
	if r.Method == http.MethodPost || i < 0 {
		return openedView{}, false
	}
	return openedView{i, q.Get("limit")}, true
}

// fragments returns the page's parts. All viewers share one rendering for half a tick.
func (p *page) fragments(r *http.Request) []fragment {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	s, open := p.openedBy(r)
	if !open {
		return p.parts
	}
	html, found := p.openViews[s]
	if !found {
		html = p.open(p.views[s.limiter], s.limit)
		p.openViews[s] = html
	}
	return append(p.parts[:len(p.parts):len(p.parts)], fragment{"open", html})
}

// refresh renders the parts anew if they are old. The caller holds p.mu.
func (p *page) refresh() {
	if p.parts == nil || time.Since(p.rendered) >= tick/2 {
		var boards []fragment
		p.views = nil
		for i, b := range p.boards {
			v := p.viewLimiter(b)
			p.views = append(p.views, v)
			boards = append(boards, fragment{"board" + strconv.Itoa(i), render("board", v)})
		}
		p.parts = append([]fragment{{"wrong", render("wrong", p.views)}}, boards...)
		p.openViews, p.rendered = map[openedView]template.HTML{}, time.Now()
	}
}

// open renders a limiter, or one of its limits, in all detail.
func (p *page) open(v *limiterView, limit string) template.HTML {
	if limit == "" {
		v.Denials = p.allDenials(v)
		return render("limiter", v)
	}
	for i := range v.Limits {
		if l := &v.Limits[i]; l.Name == limit {
			l.Denials = p.denialsOf(v.board, l)
			return render("limit", struct {
				*limitView
				Limiter *limiterView
			}{l, v})
		}
	}
	return render("limit", nil)
}

func render(name string, data any) template.HTML {
	var html bytes.Buffer
	if err := templates.ExecuteTemplate(&html, name, data); err != nil {
		panic(err) // a template of this package is wrong
	}
	return template.HTML(html.String())
}

func (p *page) show(w http.ResponseWriter, r *http.Request, status int, f *keyResult) {
	if wantsJSON(r) {
		p.showJSON(w, r, status, f)
		return
	}
	v := view{page: p, Process: p.name, Parts: p.fragments(r), Found: f}
	var html bytes.Buffer
	if err := templates.ExecuteTemplate(&html, "page.html", v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(html.Bytes())
}

// serveEvents sends the parts that have changed at each tick.
func (p *page) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !p.addViewer() {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer p.removeViewer()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	out := http.NewResponseController(w)
	ticker, end := time.NewTicker(tick), time.After(streamFor)
	defer ticker.Stop()
	sent := map[string]template.HTML{}
	for {
		_ = out.SetWriteDeadline(time.Now().Add(5 * tick)) // a server's WriteTimeout is for answers that end
		changed := slices.DeleteFunc(slices.Clone(p.fragments(r)), func(f fragment) bool { return sent[f.ID] == f.HTML })
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

func (p *page) addViewer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers >= mostViewers {
		return false
	}
	p.viewers++
	return true
}

func (p *page) removeViewer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewers--
}
