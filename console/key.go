package console

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// found is what the page says of a key that was looked up.
type found struct {
	Limiter string
	Index   int
	Key     string // as it was typed
	Error   string
	Done    string // what an action has done
	Limits  []standing
}

// standing is where a key stands with a limit.
type standing struct {
	Limit, Text          string
	Left, Of, InFlight   int64
	Slots, Ban, Banned   bool
	Free                 bool
	Full, More           string
	DryRun, Local, Known bool
}

// key looks a key up, and acts on it.
func (p *page) key(w http.ResponseWriter, r *http.Request) {
	if err := p.cross.Check(r); err != nil {
		http.Error(w, "cross-origin requests are refused", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	i, err := strconv.Atoi(r.PostFormValue("limiter"))
	if err != nil || i < 0 || i >= len(p.boards) {
		http.Error(w, "no such limiter", http.StatusBadRequest)
		return
	}
	b := p.boards[i]
	f := &found{Limiter: b.title(i), Index: i, Key: r.PostFormValue("key")}
	switch action := r.PostFormValue("do"); action {
	case "", "look":
	case "reset":
		if !p.Actions {
			http.Error(w, "the console was made without WithActions", http.StatusForbidden)
			return
		}
		err := b.limiter.Reset(r.Context(), f.Key)
		p.log(r, action, f, err)
		if err != nil {
			f.Error = err.Error()
		} else {
			f.Done = "This key was reset: what it had consumed is forgotten, and its bans are lifted."
		}
	default:
		http.Error(w, "no such action", http.StatusBadRequest)
		return
	}
	if f.Error == "" {
		p.look(r, b, f)
	}
	status := http.StatusOK
	if f.Error != "" {
		status = http.StatusUnprocessableEntity
	}
	p.show(w, status, &view{Found: f})
}

func (p *page) log(r *http.Request, action string, f *found, err error) {
	attrs := []any{"action", action, "limiter", f.Limiter, "key", p.named(f.Key), "remote", r.RemoteAddr}
	l := cmp.Or(p.logger, slog.Default())
	if err != nil {
		l.ErrorContext(r.Context(), "stint: console: an action failed", append(attrs, "error", err)...)
		return
	}
	l.WarnContext(r.Context(), "stint: console: an action", attrs...)
}

// look asks the store where a key stands.
func (p *page) look(r *http.Request, b *board, f *found) {
	d, err := b.limiter.Peek(r.Context(), f.Key)
	if err != nil {
		f.Error = err.Error()
		return
	}
	rules := map[string]stint.Rule{}
	for _, rule := range b.limiter.Describe().Rules {
		if rule.Route == "" {
			rules[rule.Limit] = rule
		}
	}
	for _, s := range d.Limits {
		rule, known := rules[s.Name]
		at := standing{
			Limit: s.Name, Text: rule.Text, Left: max(s.Remaining, 0), Of: most(&s, rule.Spec), InFlight: s.InFlight,
			Slots: rule.Spec.Algorithm == store.Concurrency, Ban: rule.Spec.Algorithm == store.Ban, DryRun: s.DryRun, Local: rule.Local, Known: known,
			Full: until(s.ResetAfter), More: until(s.RetryAfter), Free: s.Allowed,
		}
		at.Banned = at.Ban && !s.Allowed
		f.Limits = append(f.Limits, at)
	}
}

// most is what a key has that was never seen.
func most(s *stint.LimitStatus, spec store.Spec) int64 {
	if spec.Algorithm == store.Concurrency {
		return max(s.Quota, s.Remaining, 1) // an adaptive one's is that of the moment
	}
	return max(s.Quota, spec.Burst, s.Remaining, 1)
}

// shown is how a key of an event is shown: as one types it, to look it up. Of a long
// one there is only its hash.
func (p *page) shown(key string) string {
	if key == everybody {
		return "everybody's"
	}
	if raw, err := url.PathUnescape(key); err == nil {
		key = raw
	}
	return p.named(key)
}

// everybody is the key of stint.Global in events.
const everybody = "%00global"

// named is a key in clear, or its beginning and a fingerprint.
func (p *page) named(key string) string {
	if p.Clear {
		return key
	}
	mac := hmac.New(sha256.New, p.secret)
	mac.Write([]byte(key))
	n := 0
	for range min(3, utf8.RuneCountInString(key)/4) {
		_, size := utf8.DecodeRuneInString(key[n:])
		n += size
	}
	return fmt.Sprintf("%s… #%s", key[:n], hex.EncodeToString(mac.Sum(nil)[:3]))
}
