package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/permit"
	"github.com/stint-go/stint/store"
)

// api is the HTTP interface for clients in any language. They take permits by key, and hold them as tokens.
//
// A token stands for the charges of a permit as they were when the token was sealed. So each token may be used once, or
// its charges could be refunded twice. Its use is marked in the store that has the charges, before they are settled: if
// the process dies in between, the charge stays.
type api struct {
	trusted  *trusted
	limiters map[string]*stint.Limiter
	sealer   sealer
	life     time.Duration // of tokens
	own      [16]byte      // identifies this process
	local    bool          // the counts are in its memory
	log      *occasionally
	now      func() time.Time
}

// skew is by how much the replicas' clocks may differ. The mark of a used token is kept for the token's life and the
// skew.
const skew = time.Minute

// LongestLife is the longest life of a token.
const LongestLife = 24 * time.Hour

//go:embed openapi.yaml
var openAPI []byte

// newAPI returns the interface to limiters, by their names.
func newAPI(c *Config, trusted *trusted, limiters map[string]*stint.Limiter, log *occasionally) (*api, error) {
	a := &api{
		trusted: trusted, limiters: limiters, sealer: newSealer(c.Secret), life: c.TokenLife, local: c.Redis == nil,
		log: log,
		now: time.Now,
	}
	_, err := rand.Read(a.own[:])
	return a, err
}

// serve answers a request with what decide returns.
func serve(w http.ResponseWriter, r *http.Request, decide func(context.Context, []byte) (any, *problem)) {
	body, p := readBody(w, r)
	if p != nil {
		p.write(w)
		return
	}
	switch said, p := decide(r.Context(), body); {
	case p != nil:
		p.write(w)
	case said == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		writeJSON(w, http.StatusOK, said)
	}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !a.trusted.has(r.RemoteAddr) {
		leaveBody(w, r)
		a.log.warn("a client that isn't trusted: add its network to --trust, if it is one of yours", "peer",
			r.RemoteAddr)
		newProblem(http.StatusForbidden, "this address isn't in --trust").write(w)
		return
	}
	switch r.URL.Path {
	case "/v1/take":
		serve(w, r, a.take)
	case "/v1/extend":
		serve(w, r, a.extend)
	case "/v1/settle":
		serve(w, r, a.settle)
	case "/v1/peek":
		serve(w, r, a.peek)
	case "/v1/openapi.yaml":
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(openAPI)
	default:
		leaveBody(w, r)
		newProblem(http.StatusNotFound, "write /v1/take, /v1/extend, /v1/settle or /v1/peek").write(w)
	}
}

// decisionBody is the answer to a request that is decided.
type decisionBody struct {
	Allowed bool        `json:"allowed"`
	Limits  []limitBody `json:"limits"`
	Token   string      `json:"token,omitempty"`
}

// limitBody is how a limit stands after a decision.
type limitBody struct {
	Name       string `json:"name"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after_ms"` // nil: such a cost never passes
	ResetAfter int64  `json:"reset_after_ms"`
}

// newDecisionBody returns the answer of a decision. Dry runs are left out, and limits that weren't asked.
func newDecisionBody(d stint.Decision, asked func(stint.LimitStatus) bool) *decisionBody {
	said := &decisionBody{Allowed: d.Allowed, Limits: []limitBody{}}
	for _, s := range d.Limits {
		if s.DryRun || !asked(s) {
			continue
		}
		l := limitBody{Name: s.Name, Remaining: s.Remaining, ResetAfter: milliseconds(s.ResetAfter)}
		if s.RetryAfter != stint.Never {
			after := milliseconds(s.RetryAfter)
			l.RetryAfter = &after
		}
		said.Limits = append(said.Limits, l)
	}
	return said
}

func everyLimit(stint.LimitStatus) bool { return true }

// limiter returns the limiter of a name.
func (a *api) limiter(name string) (*stint.Limiter, *problem) {
	if l := a.limiters[name]; l != nil {
		return l, nil
	}
	return nil, newProblem(http.StatusNotFound,
		"no limiter %.80q: write the name of a policy file, without its extension", name)
}

// failed returns the answer to an error of a limiter.
func (a *api) failed(err error) *problem {
	switch {
	case errors.Is(err, store.ErrCost):
		return newProblem(http.StatusBadRequest, "cost is out of range")
	case errors.Is(err, stint.ErrEmptyKey):
		return newProblem(http.StatusBadRequest, "the key is empty")
	case errors.Is(err, stint.ErrKeyTooLong):
		return newProblem(http.StatusBadRequest, "the key is too long")
	case isStoreError(err):
		return newProblem(http.StatusServiceUnavailable,
			"the store has failed: it isn't known whether anything was charged or refunded")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return newProblem(http.StatusServiceUnavailable, "the client has ended the request")
	}
	return newProblem(http.StatusBadRequest, "%s", strings.TrimPrefix(err.Error(), "stint: "))
}

func (a *api) take(ctx context.Context, body []byte) (any, *problem) {
	var name, key string
	cost := int64(1)
	if p := parseBody(body, required("limiter", &name), required("key", &key), optional("cost", &cost)); p != nil {
		return nil, p
	}
	l, p := a.limiter(name)
	if p != nil {
		return nil, p
	}
	taken, err := l.Take(ctx, key, cost)
	if denied := (*stint.DeniedError)(nil); errors.As(err, &denied) {
		return newDecisionBody(denied.Decision, everyLimit), nil
	} else if err != nil {
		return nil, a.failed(err)
	}
	defer taken.Done()
	said := newDecisionBody(taken.Decision(), everyLimit)
	if said.Token, p = a.seal(&permitToken{limiter: name, key: key}, taken); p != nil {
		_ = taken.Settle(ctx, 0) // nobody can settle it later
	}
	return said, p
}

func (a *api) peek(ctx context.Context, body []byte) (any, *problem) {
	var name, key string
	if p := parseBody(body, required("limiter", &name), required("key", &key)); p != nil {
		return nil, p
	}
	l, p := a.limiter(name)
	if p != nil {
		return nil, p
	}
	d, err := l.Peek(ctx, key)
	if err != nil {
		return nil, a.failed(err)
	}
	return newDecisionBody(d, everyLimit), nil
}

// seal returns the token of a permit that is of the limiter and the key of t.
func (a *api) seal(t *permitToken, p *stint.Permit) (string, *problem) {
	next := &permitToken{limiter: t.limiter, key: t.key, kept: permit.Travel.Keep(p),
		end: a.now().Add(a.life + time.Second - 1)}
	if a.local {
		next.process = a.own
	}
	for i := range next.kept {
		if next.kept[i].Receipt.Path != 0 { // a secondary store's, in the memory of this process
			next.process = a.own
		}
	}
	text, err := a.sealer.seal(next)
	if err != nil {
		return "", newProblem(http.StatusInternalServerError, "%v", err)
	}
	return text, nil
}

func (a *api) extend(ctx context.Context, body []byte) (any, *problem) {
	return a.use(ctx, body, (*stint.Permit).Extend)
}

func (a *api) settle(ctx context.Context, body []byte) (any, *problem) {
	return a.use(ctx, body, (*stint.Permit).Settle)
}

// operation is Permit.Extend or Permit.Settle.
type operation func(p *stint.Permit, ctx context.Context, cost int64, limits ...string) error

// use does an operation on the permit of a token, and returns the token that takes its place.
func (a *api) use(ctx context.Context, body []byte, do operation) (any, *problem) {
	var text string
	var cost int64
	var limits []string
	if p := parseBody(body, required("token", &text), required("cost", &cost), optional("limits", &limits)); p != nil {
		return nil, p
	}
	if cost < 0 || cost > store.MaxCost {
		return nil, newProblem(http.StatusBadRequest, "cost is out of range: write 0 to 2^40")
	}
	t, err := a.sealer.open(text, a.now())
	if err != nil {
		return nil, newProblem(http.StatusUnauthorized, "%v", err)
	}
	l, p := a.limiter(t.limiter)
	switch {
	case p != nil:
		return nil, p
	case t.process != [16]byte{} && t.process != a.own:
		return nil, newProblem(http.StatusMisdirectedRequest,
			"the counts of this token are in the memory of another process, or of one that has ended: only that process can settle it")
	case len(t.kept) == 0: // the store failed, and the limits let it pass: nothing was charged, and nothing ever is
		said := &decisionBody{Allowed: true, Limits: []limitBody{}}
		said.Token, p = a.seal(t, &stint.Permit{})
		return said, p
	}
	resumed, err := permit.Travel.Resume(ctx, l, t.key, t.kept)
	if err != nil {
		return nil, a.failed(err)
	}
	held := resumed.(*stint.Permit)
	if p := a.mark(ctx, l.Describe().Store, t); p != nil {
		return nil, p
	}
	err = do(held, ctx, cost, limits...)
	next, p := a.seal(t, held)
	if p != nil {
		return nil, p
	}
	denied := (*stint.DeniedError)(nil)
	switch {
	case errors.As(err, &denied):
		said := newDecisionBody(denied.Decision, everyLimit)
		said.Token = next
		return said, nil
	case err != nil:
		p := a.failed(err)
		p.Token = next
		return nil, p
	}
	// The token says nothing of how its limits stand, so only those that were asked now have numbers.
	asked := func(s stint.LimitStatus) bool { return s.Remaining > 0 || s.ResetAfter > 0 }
	said := newDecisionBody(held.Decision(), asked)
	said.Allowed, said.Token = true, next
	return said, nil
}

// mark marks a token as used, in the store that has its charges. The mark is a unit of a bucket whose key is the token
// and that has no second unit until the token has expired on all replicas.
func (a *api) mark(ctx context.Context, s store.Store, t *permitToken) *problem {
	left := (t.end.Sub(a.now()) + skew).Truncate(time.Minute) + time.Minute
	l, err := store.NewLimit(store.Spec{Name: "used-token", Units: 1, Period: left})
	if err != nil {
		return newProblem(http.StatusInternalServerError, "%v", err)
	}
	charges := [...]store.Charge{{Key: base64.RawURLEncoding.EncodeToString(t.id[:]), Limit: l, Cost: 1}}
	var results [1]store.Result
	err = s.Take(ctx, charges[:], results[:])
	// A mark in the memory of this process keeps no other process from using the token.
	elsewhere := err == nil && results[0].Receipt.Path != 0 && t.process != a.own
	switch {
	case err != nil || elsewhere:
		a.log.warn("a token can't be marked as used, so its request is denied", "limiter", t.limiter, "error", err)
		return newProblem(http.StatusServiceUnavailable,
			"the store has failed, so the token can't be marked as used: try again with the same token. If it is used then, its charge stays")
	case !results[0].OK:
		return newProblem(http.StatusConflict, "the token is used: each one is for one call, whose answer has the next")
	}
	return nil
}

// admin returns the handler of an operation for operators, who know the token of the live page.
func (a *api) admin(token string, do func(context.Context, []byte) (any, *problem)) http.HandlerFunc {
	want := sha256.Sum256([]byte("Bearer " + token))
	return func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			newProblem(http.StatusUnauthorized, "write Authorization: Bearer and the token of --token-file").write(w)
			return
		}
		serve(w, r, do)
	}
}

// resetBody is the answer to a reset.
type resetBody struct {
	Found bool `json:"found"`
}

func (a *api) reset(ctx context.Context, body []byte) (any, *problem) {
	var name, key string
	var limits []string
	if p := parseBody(body, required("limiter", &name), required("key", &key), optional("limits", &limits)); p != nil {
		return nil, p
	}
	l, p := a.limiter(name)
	if p != nil {
		return nil, p
	}
	found, err := l.Reset(ctx, key, limits...)
	if err != nil {
		return nil, a.failed(err)
	}
	return resetBody{found}, nil
}

func (a *api) ban(ctx context.Context, body []byte) (any, *problem) {
	var name, key string
	var length int64
	var limits []string
	if p := parseBody(body, required("limiter", &name), required("key", &key), required("for_ms", &length),
		optional("limits", &limits)); p != nil {
		return nil, p
	}
	if length < 1 || length > (365*24*time.Hour).Milliseconds() {
		return nil, newProblem(http.StatusBadRequest, "for_ms is out of range: write a millisecond to 365 days")
	}
	l, p := a.limiter(name)
	if p != nil {
		return nil, p
	}
	if err := l.Ban(ctx, key, time.Duration(length)*time.Millisecond, limits...); err != nil {
		return nil, a.failed(err)
	}
	return nil, nil
}
