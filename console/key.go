package console

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
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
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/store"
)

// found is all that is known of a key, in all limiters.
type found struct {
	Key     string // as the page shows it
	Typed   string // as it was typed; "" if it was opened from the page
	Open    string // what opens it again, if it wasn't typed
	Error   string
	Here    []foundIn
	Actions bool
}

// foundIn is where a key stands in one limiter.
type foundIn struct {
	*found
	Limiter string
	Index   int
	Error   string
	Done    string // the result of an action
	Banned  bool   // by a ban that can be lifted for this key
	Shared  bool   // the store's counts are
	Limits  []standing
	Missing []string // limits that can't be looked up
	Denials []denialView
}

// Escaped returns a key that was typed as the form of actions holds it. Not every key is the
// same after a browser has read it from a page and sent it: NUL bytes and what isn't UTF-8 are
// replaced, and so are the ends of lines.
func (f *found) Escaped() string { return url.PathEscape(f.Typed) }

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

// key looks up a key in all limiters, after an action on it in one if the form asks for that.
func (p *page) key(w http.ResponseWriter, r *http.Request, who string) {
	if err := p.cross.Check(r); err != nil {
		http.Error(w, "cross-origin requests are denied; a proxy without TLS must pass the Host field on", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	do := r.PostFormValue("do")
	acts := do != "" && do != "look"
	in := -1
	if acts || r.PostForm.Has("limiter") {
		i, err := strconv.Atoi(r.PostFormValue("limiter"))
		if err != nil || i < 0 || i >= len(p.boards) {
			http.Error(w, "no such limiter", http.StatusBadRequest)
			return
		}
		in = i
	}
	key, f := r.PostFormValue("key"), &found{Actions: p.Actions}
	var err error
	switch open := r.PostFormValue("open"); {
	case open != "":
		if key, err = p.opened(open); err != nil {
			http.Error(w, "no such key: another process has shown it, or this one before it was restarted; go back, and open it anew", http.StatusBadRequest)
			return
		}
		f.Open, f.Key = open, p.named(key)
	case r.PostForm.Has("escaped"):
		if key, err = url.PathUnescape(r.PostFormValue("escaped")); err != nil {
			http.Error(w, "no such key", http.StatusBadRequest)
			return
		}
		fallthrough
	default:
		f.Key, f.Typed = key, key
	}
	for i, b := range p.boards {
		f.Here = append(f.Here, foundIn{found: f, Limiter: b.title(i), Index: i, Shared: !isMemory(b.limiter.Describe().Store)})
	}
	if acts {
		act := actions[do]
		switch {
		case act == nil:
			http.Error(w, "no such action", http.StatusBadRequest)
			return
		case !p.Actions:
			http.Error(w, "the console was made without WithActions", http.StatusForbidden)
			return
		}
		at := &f.Here[in]
		done, err := act(r.Context(), p.boards[in], key)
		p.log(r, who, do, at.Limiter, key, err)
		at.Done = done
		if err != nil {
			at.Done, at.Error = "", err.Error()
		}
	}
	status := http.StatusOK
	for i := range f.Here {
		at := &f.Here[i]
		if at.Error == "" {
			p.look(r, p.boards[i], key, at)
		}
		if at.Error != "" {
			status = http.StatusUnprocessableEntity
		}
	}
	p.show(w, r, status, f)
}

// seal returns what opens a key that the page shows: the key, encrypted. Equal keys have equal
// ones, so that what is shown changes only if a key does.
func (p *page) seal(key string) string {
	mac := hmac.New(sha256.New, p.secret)
	mac.Write([]byte("nonce "))
	mac.Write([]byte(key))
	nonce := mac.Sum(nil)[:p.sealer.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(p.sealer.Seal(nonce, nonce, []byte(key), nil))
}

// opened returns the key that was sealed.
func (p *page) opened(sealed string) (string, error) {
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(data) < p.sealer.NonceSize() {
		return "", errors.New("not sealed here")
	}
	n := p.sealer.NonceSize()
	key, err := p.sealer.Open(nil, data[:n], data[n:], nil)
	return string(key), err
}

// newSealer returns what keys are sealed with.
func newSealer(secret []byte) cipher.AEAD {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("seal"))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		panic(err) // the size is right
	}
	sealer, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return sealer
}

// actions are the actions on a key, by their names in the form. Each returns what it has
// done.
var actions = map[string]func(context.Context, *board, string) (string, error){
	"reset": func(ctx context.Context, b *board, key string) (string, error) {
		return "This key was reset: what it had consumed is forgotten, and its bans are lifted.", b.limiter.Reset(ctx, key)
	},
	"lift": func(ctx context.Context, b *board, key string) (string, error) {
		bans, err := b.bans(ctx, key)
		if err != nil {
			return "", err
		}
		if len(bans) == 0 {
			return "", errors.New("this limiter bans no key")
		}
		return "The bans of this key are lifted. What it had consumed of other limits stays.", b.limiter.Reset(ctx, key, bans...)
	},
}

// bans returns the names of the bans by a key: lifting one with a constant key would lift it
// for everybody.
func (b *board) bans(ctx context.Context, key string) (names []string, err error) {
	rules, err := b.rules(ctx, key)
	for _, r := range rules {
		if r.Spec.Algorithm == store.Ban && !r.Key.Constant() && !slices.Contains(names, r.Limit) {
			names = append(names, r.Limit)
		}
	}
	return names, err
}

// rules returns the rules of the limiter and of the key's plan.
func (b *board) rules(ctx context.Context, key string) ([]stint.Rule, error) {
	more, err := b.limiter.DescribeKey(ctx, key)
	return append(b.limiter.Describe().Rules, more...), err
}

func (p *page) log(r *http.Request, who, action, limiter, key string, err error) {
	attrs := []any{"action", action, "limiter", limiter, "key", p.named(key), "remote", r.RemoteAddr}
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
func (p *page) look(r *http.Request, b *board, key string, f *foundIn) {
	d, err := b.limiter.PeekAll(r.Context(), key)
	if err != nil {
		f.Error = err.Error()
		return
	}
	all, err := b.rules(r.Context(), key)
	if err != nil {
		f.Error = err.Error()
		return
	}
	rules, routes := map[string]stint.Rule{}, map[string][]string{}
	for _, rule := range all {
		if _, known := rules[rule.Limit]; !known {
			rules[rule.Limit] = rule
		}
		routes[rule.Limit] = append(routes[rule.Limit], whereOf(rule))
	}
	for _, s := range d.Limits {
		rule := rules[s.Name]
		at := standing{
			Limit: s.Name, Text: rule.Text, Routes: routes[s.Name],
			Left: max(s.Remaining, 0), Of: max(s.Capacity, s.Remaining, 1), InFlight: s.InFlight,
			Slots: rule.Spec.Algorithm == store.Concurrency, Ban: rule.Spec.Algorithm == store.Ban,
			Free: s.Allowed, Full: until(s.ResetAfter), More: until(s.RetryAfter),
			DryRun: s.DryRun, Local: rule.Local, Everybody: rule.Key.Constant(),
		}
		at.Banned = at.Ban && !s.Allowed
		f.Banned = f.Banned || at.Banned && !at.Everybody
		f.Limits = append(f.Limits, at)
	}
	f.Missing = b.missing(d, rules)
	if encoded, err := keytext.Encode(key); err == nil {
		for _, r := range b.denialsOf(encoded) {
			f.Denials = append(f.Denials, p.denial(r, rules))
		}
	}
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

// shown returns an event's key as the page shows it, as one types it to look it up, and what
// opens it. For a long key an event has only the hash, which opens nothing.
func (p *page) shown(key string) shownKey {
	if key == everybody {
		return shownKey{Text: "Global"}
	}
	if raw, err := url.PathUnescape(key); err == nil && raw != "" {
		return shownKey{p.named(raw), p.seal(raw)}
	}
	return shownKey{Text: p.named(key)}
}

// shownKey is a key on the page.
type shownKey struct{ Text, Open string }

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
