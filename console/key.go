package console

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/store"
)

// found is the result of looking up a key.
type found struct {
	Limiter string
	Index   int
	Key     string
	Error   string
	Done    string // the result of an action
	Banned  bool   // by a ban that can be lifted for this key
	Limits  []standing
	Missing []string // limits that can't be looked up
}

// Escaped returns the key as the form of actions holds it. Not every key is the same after
// a browser has read it from a page and sent it: NUL bytes and what isn't UTF-8 are
// replaced, and so are the ends of lines.
func (f *found) Escaped() string { return url.PathEscape(f.Key) }

// standing is where a key stands with a limit.
type standing struct {
	Limit, Text        string
	Routes             []string
	Left, Of, InFlight int64
	Slots, Ban, Banned bool
	Free               bool
	Full, More         string
	DryRun, Local      bool
	Everybody          bool
}

// key looks up a key, after an action on it if the form asks for one.
func (p *page) key(w http.ResponseWriter, r *http.Request, who string) {
	if err := p.cross.Check(r); err != nil {
		http.Error(w, "cross-origin requests are denied; a proxy without TLS must pass the Host field on", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	i, err := strconv.Atoi(r.PostFormValue("limiter"))
	if err != nil || i < 0 || i >= len(p.boards) {
		http.Error(w, "no such limiter", http.StatusBadRequest)
		return
	}
	b := p.boards[i]
	key := r.PostFormValue("key")
	if r.PostForm.Has("escaped") {
		if key, err = url.PathUnescape(r.PostFormValue("escaped")); err != nil {
			http.Error(w, "no such key", http.StatusBadRequest)
			return
		}
	}
	f := &found{Limiter: b.title(i), Index: i, Key: key}
	if do := r.PostFormValue("do"); do != "" && do != "look" {
		act := actions[do]
		switch {
		case act == nil:
			http.Error(w, "no such action", http.StatusBadRequest)
			return
		case !p.Actions:
			http.Error(w, "the console was made without WithActions", http.StatusForbidden)
			return
		}
		done, err := act(r.Context(), b, f.Key)
		p.log(r, who, do, f, err)
		f.Done = done
		if err != nil {
			f.Done, f.Error = "", err.Error()
		}
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

// actions are the actions on a key, by their names in the form. Each returns what it has
// done.
var actions = map[string]func(context.Context, *board, string) (string, error){
	"reset": func(ctx context.Context, b *board, key string) (string, error) {
		return "This key was reset: what it had consumed is forgotten, and its bans are lifted.", b.limiter.Reset(ctx, key)
	},
	"lift": func(ctx context.Context, b *board, key string) (string, error) {
		bans := b.bans()
		if len(bans) == 0 {
			return "", errors.New("this limiter bans no key")
		}
		return "The bans of this key are lifted. What it had consumed of other limits stays.", b.limiter.Reset(ctx, key, bans...)
	},
}

// bans returns the names of the bans by key: lifting one with a constant key would lift it
// for everybody.
func (b *board) bans() (names []string) {
	for _, r := range b.limiter.Describe().Rules {
		if r.Spec.Algorithm == store.Ban && !r.Key.Constant() && !slices.Contains(names, r.Limit) {
			names = append(names, r.Limit)
		}
	}
	return names
}

func (p *page) log(r *http.Request, who, action string, f *found, err error) {
	attrs := []any{"action", action, "limiter", f.Limiter, "key", p.named(f.Key), "remote", r.RemoteAddr}
	if who != "" {
		attrs = append(attrs, "who", who)
	}
	l := cmp.Or(p.logger, slog.Default())
	if err != nil {
		l.ErrorContext(r.Context(), "stint: console: an action failed", append(attrs, "error", err)...)
		return
	}
	l.WarnContext(r.Context(), "stint: console: an action", attrs...)
}

// look asks the store where a key stands with all limits of a limiter.
func (p *page) look(r *http.Request, b *board, f *found) {
	d, err := b.limiter.PeekAll(r.Context(), f.Key)
	if err != nil {
		f.Error = err.Error()
		return
	}
	rules, routes := map[string]stint.Rule{}, map[string][]string{}
	for _, rule := range b.limiter.Describe().Rules {
		if _, known := rules[rule.Limit]; !known {
			rules[rule.Limit] = rule
		}
		routes[rule.Limit] = append(routes[rule.Limit], whereOf(rule))
	}
	for _, s := range d.Limits {
		rule := rules[s.Name]
		at := standing{
			Limit: s.Name, Text: rule.Text, Routes: routes[s.Name],
			Left: max(s.Remaining, 0), Of: most(&s, rule.Spec), InFlight: s.InFlight,
			Slots: rule.Spec.Algorithm == store.Concurrency, Ban: rule.Spec.Algorithm == store.Ban,
			Free: s.Allowed, Full: until(s.ResetAfter), More: until(s.RetryAfter),
			DryRun: s.DryRun, Local: rule.Local, Everybody: rule.Key.Constant(),
		}
		at.Banned = at.Ban && !s.Allowed
		f.Banned = f.Banned || at.Banned && !at.Everybody
		f.Limits = append(f.Limits, at)
	}
	f.Missing = b.missing(d, rules)
}

// missing returns the limits in which a key can't be looked up, each with the reason.
func (b *board) missing(d stint.Decision, rules map[string]stint.Rule) (all []string) {
	for name, rule := range rules {
		if !slices.ContainsFunc(d.Limits, func(s stint.LimitStatus) bool { return s.Name == name }) {
			all = append(all, name+": "+rule.Text+", paces responses and denies no request")
		}
	}
	for l := range b.seen {
		if _, known := rules[l.name]; !known {
			all = append(all, l.name+": "+elsewhere)
		}
	}
	slices.Sort(all)
	return all
}

// most returns what a key never seen has left.
func most(s *stint.LimitStatus, spec store.Spec) int64 {
	if spec.Algorithm == store.Concurrency {
		return max(s.Units, s.Remaining, 1) // an adaptive limit's number changes
	}
	return max(s.Units, spec.Burst, s.Remaining, 1)
}

// shown returns an event's key as the page shows it: as one types it to look it up. For a
// long key an event has only the hash.
func (p *page) shown(key string) string {
	if key == everybody {
		return "Global"
	}
	if raw, err := url.PathUnescape(key); err == nil {
		key = raw
	}
	return p.named(key)
}

// everybody is the key of stint.Global in events.
const everybody = "%00global"

// named returns a key in clear, or its beginning and a fingerprint.
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
