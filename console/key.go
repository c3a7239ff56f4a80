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
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// keyResult is the result of looking up a key in all limiters.
type keyResult struct {
	Key     string // as the page shows it
	Typed   string // as it was typed; "" if it was opened from the page
	Here    []limiterResult
	Actions bool
}

// limiterResult is the result in one limiter.
type limiterResult struct {
	*keyResult
	Limiter string
	ID      string
	As      string // the key, if it isn't what was typed
	Open    string // what opens the key again
	key     string
	Error   string
	Done    string // the result of an action
	Banned  bool   // by a ban that can be lifted for this key
	Bans    bool   // this key can be banned
	Shared  bool   // the store's counts are
	Used    bool   // a limit counts something for it
	Seen    bool   // this process has decided requests of it
	Since   string // when this process began to remember keys
	Limits  []standing
	Missing []string // limits that can't be looked up
	Denials []denialView
}

// standing has the units that a key has left of one limit.
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

// serveKey looks up a key in all limiters, after an action on it in one if the form asks for that. A key
// that is opened comes sealed, by a link or by the form of actions.
func (p *page) serveKey(w http.ResponseWriter, r *http.Request, who string) {
	var do, in string
	open, f := r.URL.Query().Get("open"), &keyResult{Actions: p.Actions}
	if r.Method == http.MethodPost {
		if err := p.crossOrigin.Check(r); err != nil {
			http.Error(w, "cross-origin requests are denied; a proxy without TLS must pass the Host field on",
				http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
		open, do, in = r.PostFormValue("open"), r.PostFormValue("do"), r.PostFormValue("limiter")
		f.Typed = strings.TrimSpace(r.PostFormValue("key")) // a pasted one may have a space at its end
	}
	key := f.Typed
	if open != "" {
		var err error
		if key, err = p.unseal(open); err != nil {
			http.Error(w, "this link to a key isn't valid here: it comes from a page with another token or, without a token, "+
				"from another process or from before a restart; go back, reload the page and open the key again",
				http.StatusBadRequest)
			return
		}
		f.Typed = ""
	}
	if f.Key = p.displayKey(key); f.Typed != "" {
		f.Key = key
	}
	for _, b := range p.boards {
		found := []string{key}
		if f.Typed != "" {
			found = b.find(r.Context(), key)
		}
		for _, k := range found {
			at := limiterResult{keyResult: f, Limiter: b.title, ID: b.id, Shared: !isMemory(b.limiter.Describe().Store), key: k,
				Open: p.seal(k)}
			if k != key {
				at.As = k
			}
			f.Here = append(f.Here, at)
		}
	}
	if do != "" && do != "look" {
		act, i := actionOf(do), slices.IndexFunc(p.boards, func(b *board) bool { return b.id == in })
		switch {
		case i < 0:
			http.Error(w, "no such limiter", http.StatusBadRequest)
			return
		case act == nil:
			http.Error(w, "no such action", http.StatusBadRequest)
			return
		case !p.Actions:
			http.Error(w, "the console was made without WithActions", http.StatusForbidden)
			return
		}
		for k := range f.Here {
			at := &f.Here[k]
			if at.ID != in {
				continue
			}
			done, err := act(r.Context(), p.boards[i], at.key)
			p.logAction(r, who, do, at.Limiter, at.key, err)
			at.Done = done
			if err != nil {
				at.Done, at.Error = "", err.Error()
			}
		}
	}
	status := http.StatusOK
	for i := range f.Here {
		at := &f.Here[i]
		if at.Error == "" {
			p.lookUp(r, p.boardOf(at.ID), at.key, at)
		}
		if at.Error != "" {
			status = http.StatusUnprocessableEntity
		}
	}
	p.show(w, r, status, f)
}

// find returns the keys of a caller that an operator knows as a text: those that the limiter's keys make of
// the text and that a limit counts something for or this process has seen. If there is none, it
// returns the first one.
func (b *board) find(ctx context.Context, typed string) (found []string) {
	var all []string
	for e := range read.SealedPlans(b.limiter.Describe().Plans).Open().Entries {
		if e.Key.Constant != "" {
			continue
		}
		for _, key := range e.Key.KeysOf(typed) {
			if !slices.Contains(all, key) {
				all = append(all, key)
			}
		}
	}
	if len(all) == 0 {
		return []string{typed}
	}
	if len(all) > 1 {
		for _, key := range all {
			used, _, err := b.counts(ctx, key)
			if encoded, failed := keytext.Encode(key); err == nil && !used && failed == nil {
				used, _ = b.seenSince(encoded)
			}
			if used {
				found = append(found, key)
			}
		}
	}
	if found == nil {
		found = all[:1]
	}
	return found
}

// boardOf returns the board with an id.
func (p *page) boardOf(id string) *board {
	return p.boards[slices.IndexFunc(p.boards, func(b *board) bool { return b.id == id })]
}

// seal encrypts a key, for a link that opens it. Equal keys have equal links, so that the page changes
// only if a key does.
func (p *page) seal(key string) string {
	mac := hmac.New(sha256.New, p.secret)
	mac.Write([]byte("nonce "))
	mac.Write([]byte(key))
	nonce := mac.Sum(nil)[:p.sealer.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(p.sealer.Seal(nonce, nonce, []byte(key), nil))
}

// unseal returns the key that was sealed.
func (p *page) unseal(sealed string) (string, error) {
	data, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(data) < p.sealer.NonceSize() {
		return "", errors.New("not sealed here")
	}
	n := p.sealer.NonceSize()
	key, err := p.sealer.Open(nil, data[:n], data[n:], nil)
	return string(key), err
}

// newSealer returns the cipher of seal and unseal.
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

// actions are the actions on a key that don't ban it, by their names in the form. Each returns what it has
// done.
var actions = map[string]func(context.Context, *board, string) (string, error){
	"reset": func(ctx context.Context, b *board, key string) (string, error) {
		found, err := b.limiter.Reset(ctx, key)
		if !found {
			return "There was nothing to reset: no limit has counted anything for this key.", err
		}
		return "This key was reset: what it had consumed is forgotten, and its bans are lifted.", err
	},
	"lift": func(ctx context.Context, b *board, key string) (string, error) {
		bans, err := b.bans(ctx, key)
		if err != nil {
			return "", err
		}
		if len(bans) == 0 {
			return "", errors.New("this limiter bans no key")
		}
		_, banned, err := b.counts(ctx, key)
		if err == nil {
			_, err = b.limiter.Reset(ctx, key, bans...)
		}
		if !banned {
			return "This key was not banned. What it had consumed stays.", err
		}
		return "The bans of this key are lifted. What it had consumed of other limits stays.", err
	},
}

// banTimes are the times for which the page bans keys, by the names of the actions. Longer ones are for programs.
var banTimes = []struct {
	Do, Text string
	d        time.Duration
}{
	{"ban-hour", "an hour", time.Hour},
	{"ban-day", "a day", 24 * time.Hour},
	{"ban-month", "30 days", 30 * 24 * time.Hour},
}

// actionOf returns the action of a name in the form, or nil.
func actionOf(do string) func(context.Context, *board, string) (string, error) {
	for _, t := range banTimes {
		if t.Do == do {
			return func(ctx context.Context, b *board, key string) (string, error) {
				return "This key is banned for " + t.Text + ", or longer by a ban that ends later.", b.limiter.Ban(ctx, key, t.d)
			}
		}
	}
	return actions[do]
}

// BanTimes are the times for which the key can be banned.
func (r *limiterResult) BanTimes() any { return banTimes }

// counts reports whether some limit by a key has counted something for it, and whether it is banned.
func (b *board) counts(ctx context.Context, key string) (used, banned bool, err error) {
	d, err := b.limiter.PeekAll(ctx, key)
	if err != nil {
		return false, false, err
	}
	rules, err := b.rules(ctx, key)
	for _, s := range d.Limits {
		i := slices.IndexFunc(rules, func(r stint.Rule) bool { return r.Limit == s.Name })
		if i < 0 || rules[i].Shared {
			continue
		}
		used = used || isUsed(&s)
		banned = banned || rules[i].Spec.Algorithm == store.Ban && !s.Allowed
	}
	return used, banned, err
}

// isUsed reports whether a limit has counted something for a key.
func isUsed(s *stint.LimitStatus) bool {
	return !s.Allowed || s.Remaining < s.Capacity || s.InFlight > 0 || s.ResetAfter > 0
}

// bans returns the names of the bans by a key: lifting one with a constant key would lift it
// for everybody.
func (b *board) bans(ctx context.Context, key string) (names []string, err error) {
	rules, err := b.rules(ctx, key)
	for _, r := range rules {
		if r.Spec.Algorithm == store.Ban && !r.Shared && !slices.Contains(names, r.Limit) {
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

func (p *page) logAction(r *http.Request, who, action, limiter, key string, err error) {
	attrs := []any{"action", action, "limiter", limiter, "key", p.displayKey(key), "remote", r.RemoteAddr}
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

// lookUp asks the store what a key has left of all limits of a limiter.
func (p *page) lookUp(r *http.Request, b *board, key string, f *limiterResult) {
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
		if _, found := rules[rule.Limit]; !found {
			rules[rule.Limit] = rule
		}
		routes[rule.Limit] = append(routes[rule.Limit], ruleScope(rule))
	}
	for _, s := range d.Limits {
		rule := rules[s.Name]
		at := standing{
			Limit: s.Name, Text: rule.Text, Routes: routes[s.Name],
			Left: max(s.Remaining, 0), Of: max(s.Capacity, s.Remaining, 1), InFlight: s.InFlight,
			Slots: rule.Spec.Algorithm == store.Concurrency, Ban: rule.Spec.Algorithm == store.Ban,
			Free: s.Allowed, Full: waitText(s.ResetAfter), More: waitText(s.RetryAfter),
			DryRun: s.DryRun, Local: rule.Local, Everybody: rule.Shared,
		}
		at.Banned = at.Ban && !s.Allowed
		f.Banned = f.Banned || at.Banned && !at.Everybody
		f.Bans = f.Bans || at.Ban && !at.Everybody && !at.DryRun
		f.Used = f.Used || isUsed(&s) && !at.Everybody
		f.Limits = append(f.Limits, at)
	}
	f.Missing = b.missing(d, rules)
	if encoded, err := keytext.Encode(key); err == nil {
		var since time.Time
		f.Seen, since = b.seenSince(encoded)
		f.Since = since.Format(time.DateTime)
		for _, r := range b.denialsOf(encoded) {
			v := denialView{Limit: r.limit}
			v.setLast(r, cmp.Or(rules[r.limit].Text, "the limit is "+unknownSource), rules[r.limit].Spec.Algorithm == store.Ban)
			f.Denials = append(f.Denials, v)
		}
	}
}

// seenSince reports whether a key, as stores see it, was decided since the instant that is returned.
func (b *board) seenSince(key string) (bool, time.Time) {
	for i := range b.parts {
		b.parts[i].mu.Lock()
		b.parts[i].countBatch(b)
		b.parts[i].mu.Unlock()
	}
	return b.keys.has(maphash.String(seed, key))
}

// missing returns the limits in which a key can't be looked up, each with the reason.
func (b *board) missing(d stint.Decision, rules map[string]stint.Rule) (all []string) {
	for name, rule := range rules {
		if !slices.ContainsFunc(d.Limits, func(s stint.LimitStatus) bool { return s.Name == name }) {
			all = append(all, name+": "+rule.Text+", paces responses and denies no request")
		}
	}
	for l := range b.eachLimit {
		if _, found := rules[l.name]; !found && (l.sourced.Load() == nil || l.sourced.Load().rule.Limit == "") { // but not limits that only other keys' plans have
			all = append(all, l.name+": "+unknownSource)
		}
	}
	slices.Sort(all)
	return all
}

// viewKey returns an event's key as the page shows it, and the sealed key for its link. For a long key
// an event has only the hash, which has no link.
func (p *page) viewKey(key string) shownKey {
	if key == globalKey {
		return shownKey{Text: "Global"}
	}
	if raw, err := url.PathUnescape(key); err == nil && raw != "" {
		return shownKey{p.displayKey(raw), p.seal(raw)}
	}
	return shownKey{Text: p.displayKey(key)}
}

// shownKey is a key on the page.
type shownKey struct{ Text, Open string }

// link returns the key's link, relative to the page.
func (k shownKey) link() string {
	if k.Open == "" {
		return ""
	}
	return "key?open=" + k.Open
}

// globalKey is the key of stint.Global in events.
const globalKey = "%00global"

// displayKey returns a key in clear, or its beginning and a fingerprint.
func (p *page) displayKey(key string) string {
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
