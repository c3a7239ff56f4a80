package serve

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/internal/test/storefake"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/failover"
	"github.com/stint-go/stint/store/memstore"
	"github.com/stint-go/stint/store/redisstore"
)

const tokens = `version: 1
key: given
limits:
  - {name: calls, quota: 100/500d}
  - {name: tokens, rate: 50/24h}
`

// replica is the interface of a process.
type replica struct {
	api     *api
	limiter *stint.Limiter
	spec    spec
	log     *written
}

// newReplica returns one whose counts are on a store, or in memory if that is nil.
func newReplica(t testing.TB, s store.Store) *replica {
	t.Helper()
	return newReplicaOf(t, s, tokens)
}

func newReplicaOf(t testing.TB, s store.Store, text string) *replica {
	t.Helper()
	local := s == nil
	if local {
		s = memstore.New()
	}
	log := &written{}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	p, err := policy.Parse("policy.yaml", []byte(text), policy.WithServer(), policy.WithGivenKeys(),
		policy.WithOptions(stint.WithStore(s), stint.WithLogger(logger)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := stint.New(p.Options()...)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := newTrusted([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAPI(&Config{Secret: []byte("a secret of sixteen bytes"), TokenLife: time.Hour}, trusted,
		map[string]*stint.Limiter{"policy": l}, newOccasionally(logger))
	if err != nil {
		t.Fatal(err)
	}
	a.local = local
	return &replica{a, l, readSpec(t), log}
}

// exchange is the answer to a request.
type exchange struct {
	status  int
	body    string
	said    decisionBody
	problem problem
}

func (r *replica) request(method, path, body string) *http.Request {
	q := httptest.NewRequest(method, path, strings.NewReader(body))
	q.RemoteAddr = "192.0.2.1:4242"
	q.Header.Set("Content-Type", "application/json")
	return q
}

const adminToken = "a token of sixteen bytes"

// send sends a request, to the admin's handlers if it is for those, and checks the answer by the OpenAPI file.
func (r *replica) send(t testing.TB, q *http.Request) (e exchange) {
	t.Helper()
	var h http.Handler = r.api
	switch q.URL.Path {
	case "/v1/reset":
		h = r.api.admin(adminToken, r.api.reset)
	case "/v1/ban":
		h = r.api.admin(adminToken, r.api.ban)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	e.status, e.body = w.Code, strings.TrimSpace(w.Body.String())
	r.spec.check(t, q.URL.Path, e.status, w.Header(), []byte(e.body))
	if e.status == 200 {
		_ = json.Unmarshal([]byte(e.body), &e.said)
	} else {
		_ = json.Unmarshal([]byte(e.body), &e.problem)
	}
	return e
}

func (r *replica) post(t testing.TB, path, body string) exchange {
	t.Helper()
	q := r.request("POST", path, body)
	q.Header.Set("Authorization", "Bearer "+adminToken)
	return r.send(t, q)
}

// take takes a permit, which has to pass.
func (r *replica) take(t testing.TB, cost int) (token string) {
	t.Helper()
	e := r.post(t, "/v1/take", fmt.Sprintf(`{"limiter": "policy", "key": "k", "cost": %d}`, cost))
	if e.status != 200 || !e.said.Allowed || e.said.Token == "" {
		t.Fatalf("take: %d: %s", e.status, e.body)
	}
	return e.said.Token
}

// use extends or settles a token.
func (r *replica) use(t testing.TB, path, token string, cost int) exchange {
	t.Helper()
	return r.post(t, path, fmt.Sprintf(`{"token": %q, "cost": %d}`, token, cost))
}

// left compares what the limits have left with want.
func (r *replica) left(t testing.TB, when string, want ...int64) {
	t.Helper()
	d, err := r.limiter.Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range want {
		if got := d.Limits[i].Remaining; got != n {
			t.Errorf("%s: %d left of %s, want %d", when, got, d.Limits[i].Name, n)
		}
	}
}

// shared returns a store on Redis that replicas share.
func shared(t testing.TB, server *redistest.Server) store.Store {
	s := redisstore.New(server.Client(), redisstore.WithTimeout(10*time.Second))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A permit is taken at one replica, extended and settled at others.
func TestTokens(t *testing.T) {
	server := redistest.Start(t)
	a, b := newReplica(t, shared(t, server)), newReplica(t, shared(t, server))
	token := a.take(t, 10)
	a.left(t, "after a take", 90, 40)
	e := b.use(t, "/v1/extend", token, 30)
	if e.status != 200 || !e.said.Allowed || len(e.said.Limits) != 2 || e.said.Limits[1].Remaining != 20 ||
		e.said.Limits[1].ResetAfter < (14*time.Hour).Milliseconds() {
		t.Errorf("extend: %d: %s", e.status, e.body)
	}
	b.left(t, "after a raise", 70, 20)
	token = e.said.Token
	e = a.use(t, "/v1/extend", token, 60)
	if e.status != 200 || e.said.Allowed || e.said.Token == "" || *e.said.Limits[1].RetryAfter == 0 {
		t.Errorf("a raise that is denied: %d: %s", e.status, e.body)
	}
	a.left(t, "after a denied raise", 70, 20)
	if e := a.use(t, "/v1/settle", token, 5); e.status != 409 || e.problem.Detail == "" {
		t.Errorf("a used token: %d: %s", e.status, e.body)
	}
	e = b.use(t, "/v1/settle", e.said.Token, 25)
	if e.status != 200 || !e.said.Allowed || len(e.said.Limits) != 2 {
		t.Errorf("settle: %d: %s", e.status, e.body)
	}
	a.left(t, "after a settlement", 75, 25)
	e = a.post(t, "/v1/settle", fmt.Sprintf(`{"token": %q, "cost": 40, "limits": ["calls"]}`, e.said.Token))
	if e.status != 200 || len(e.said.Limits) != 1 || e.said.Limits[0].Name != "calls" {
		t.Errorf("settle of one limit: %d: %s", e.status, e.body)
	}
	a.left(t, "after a settlement of one limit", 60, 25)
	e = a.post(t, "/v1/settle", fmt.Sprintf(`{"token": %q, "cost": 40, "limits": ["other"]}`, e.said.Token))
	if e.status != 400 || e.problem.Token == "" || !strings.Contains(e.problem.Detail, `no limit "other"`) {
		t.Errorf("settle of a limit that isn't there: %d: %s", e.status, e.body)
	}
	if e = a.use(t, "/v1/extend", e.problem.Token, 1); e.status != 200 || !e.said.Allowed || len(e.said.Limits) != 0 {
		t.Errorf("extend to less than the cost: %d: %s", e.status, e.body)
	}
	e = a.post(t, "/v1/take", `{"limiter": "policy", "key": "k", "cost": 26}`)
	if e.status != 200 || e.said.Allowed || e.said.Token != "" || *e.said.Limits[0].RetryAfter != 0 ||
		*e.said.Limits[1].RetryAfter == 0 {
		t.Errorf("a take that is denied: %d: %s", e.status, e.body)
	}
	e = a.post(t, "/v1/take", `{"limiter": "policy", "key": "k", "cost": 51}`)
	if e.status != 200 || e.said.Allowed || e.said.Limits[1].RetryAfter != nil {
		t.Errorf("a take that can never pass: %d: %s", e.status, e.body)
	}
	e = b.post(t, "/v1/peek", `{"limiter": "policy", "key": "k"}`)
	if e.status != 200 || !e.said.Allowed || e.said.Token != "" || e.said.Limits[0].Remaining != 60 {
		t.Errorf("peek: %d: %s", e.status, e.body)
	}
	b.left(t, "in the end", 60, 25)
}

// Tokens that the server hasn't sealed, or whose time is over, change nothing.
func TestForgedTokens(t *testing.T) {
	r := newReplica(t, nil)
	token := r.take(t, 10)
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	forged := []string{
		"", "x", "ä", token[:len(token)-1], token + "A", token + "=", " " + token, strings.Repeat("A", 60<<10),
		base64.RawURLEncoding.EncodeToString(data[:31]),
	}
	for i := range data {
		changed := append([]byte(nil), data...)
		changed[i] ^= 1
		forged = append(forged, base64.RawURLEncoding.EncodeToString(changed))
	}
	other := newReplica(t, nil)
	other.api.sealer = newSealer([]byte("another secret of the same length"))
	forged = append(forged, other.take(t, 10))
	unsealed := append(make([]byte, 32), 2) // a format of the future
	copy(unsealed, r.api.sealer.sum(unsealed[32:]))
	forged = append(forged, base64.RawURLEncoding.EncodeToString(unsealed))
	for _, text := range forged {
		for _, path := range []string{"/v1/extend", "/v1/settle"} {
			if e := r.use(t, path, text, 0); e.status != 401 || !strings.Contains(e.problem.Detail, "sealed") {
				t.Errorf("%s of %.80q: %d: %s", path, text, e.status, e.body)
			}
		}
	}
	now := time.Now()
	r.api.now = func() time.Time { return now.Add(r.api.life + time.Second) }
	if e := r.use(t, "/v1/settle", token, 0); e.status != 401 || !strings.Contains(e.problem.Detail, "expired") {
		t.Errorf("an expired token: %d: %s", e.status, e.body)
	}
	r.api.now = func() time.Time { return now.Add(-LongestLife) }
	if e := r.use(t, "/v1/settle", token, 0); e.status != 401 || !strings.Contains(e.problem.Detail, "set the clocks") {
		t.Errorf("a token of a clock that is ahead: %d: %s", e.status, e.body)
	}
	r.api.now = func() time.Time { return now.Add(r.api.life - time.Second) }
	r.left(t, "after all of them", 90, 40)
	if e := r.use(t, "/v1/settle", token, 0); e.status != 200 {
		t.Errorf("a second before its end: %d: %s", e.status, e.body)
	}
	r.left(t, "after the settlement", 100, 50)
}

// One token that is used at two replicas at once is used once.
func TestReplayedAtOnce(t *testing.T) {
	server := redistest.Start(t)
	replicas := []*replica{newReplica(t, shared(t, server)), newReplica(t, shared(t, server))}
	replicas[0].take(t, 30) // so that a second refund would have something to give back
	for round := range 5 {
		token := replicas[0].take(t, 10)
		statuses := make([]int, 16)
		var wg sync.WaitGroup
		for i := range statuses {
			wg.Go(func() {
				statuses[i] = replicas[i%2].use(t, []string{"/v1/settle", "/v1/extend"}[i/2%2], token, 0).status
			})
		}
		wg.Wait()
		used := map[int]int{}
		for _, status := range statuses {
			used[status]++
		}
		if used[200] != 1 || used[409] != len(statuses)-1 {
			t.Errorf("round %d: statuses %v", round, used)
		}
		d, err := replicas[0].limiter.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if left := d.Limits[0].Remaining; left != 70 && left != 60 {
			t.Fatalf("round %d: %d left", round, left)
		}
		if d.Limits[0].Remaining == 60 { // an extend to nothing has used it
			if _, err := replicas[0].limiter.Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			replicas[0].take(t, 30)
		}
	}
}

// The mark of a used token outlives the token, also on a replica whose clock is slow by the skew.
func TestMarkOutlivesToken(t *testing.T) {
	for _, life := range []time.Duration{time.Second, 90 * time.Second, time.Hour, LongestLife} {
		for _, used := range []time.Duration{0, life / 2, life - time.Second} { // after the take
			synctest.Test(t, func(t *testing.T) {
				counts := memstore.New()
				r, slow := newReplica(t, counts), newReplica(t, counts)
				r.api.life, slow.api.life = life, life
				slow.api.now = func() time.Time { return time.Now().Add(-skew) }
				token := r.take(t, 10)
				opened, err := r.api.sealer.open(token, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(used)
				if e := r.use(t, "/v1/extend", token, 10); e.status != 200 {
					t.Errorf("a life of %v: used after %v: %d: %s", life, used, e.status, e.body)
				}
				for _, at := range []time.Time{time.Now(), time.Now().Add(time.Until(opened.end) / 2),
					opened.end.Add(-1), opened.end.Add(skew - 1)} {
					time.Sleep(time.Until(at))
					if e := slow.use(t, "/v1/settle", token, 0); e.status != 409 {
						t.Errorf("a life of %v, used after %v: %v after its end: %d: %s", life, used,
							time.Since(opened.end), e.status, e.body)
					}
				}
				if e := slow.use(t, "/v1/settle", token, 0); e.status != 409 {
					t.Errorf("%d: %s", e.status, e.body)
				}
				time.Sleep(time.Nanosecond)
				if e := slow.use(t, "/v1/settle", token, 0); e.status != 401 {
					t.Errorf("a life of %v: its end on a slow replica: %d: %s", life, e.status, e.body)
				}
			})
		}
	}
}

// A token is settled after an Update of its limits.
func TestTokensAfterAnUpdate(t *testing.T) {
	r := newReplica(t, nil)
	token := r.take(t, 10)
	changed := strings.NewReplacer("100/500d", "200/500d", "50/24h", "80/24h").Replace(tokens)
	p, err := policy.Parse("policy.yaml", []byte(changed), policy.WithServer(), policy.WithGivenKeys())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.limiter.Update(p.Options()...); err != nil {
		t.Fatal(err)
	}
	r.left(t, "after the Update", 190, 70)
	e := r.use(t, "/v1/settle", token, 4)
	if e.status != 200 {
		t.Fatalf("settle: %d: %s", e.status, e.body)
	}
	r.left(t, "after the settlement", 196, 76)
	e = r.use(t, "/v1/extend", e.said.Token, 60)
	if e.status != 200 || !e.said.Allowed {
		t.Fatalf("extend by the new numbers: %d: %s", e.status, e.body)
	}
	r.left(t, "after a raise", 140, 20)
	gone, err := policy.Parse("policy.yaml",
		[]byte("version: 1\nkey: given\nlimits: [{name: calls, quota: 100/daily}]\n"), policy.WithServer(),
		policy.WithGivenKeys())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.limiter.Update(gone.Options()...); err != nil {
		t.Fatal(err)
	}
	if e = r.use(t, "/v1/settle", e.said.Token, 0); e.status != 200 {
		t.Errorf("settle after the limits are gone: %d: %s", e.status, e.body)
	}
	if e = r.use(t, "/v1/extend", e.said.Token, 63); e.status != 200 || !e.said.Allowed {
		t.Errorf("extend after the limits are gone: %d: %s", e.status, e.body)
	}
	r.left(t, "after all", 97)
}

// What a secondary store in memory has charged, only its process can settle. While the primary is out, its own tokens
// can't be marked in a place that all processes see.
func TestTokensAfterAFailover(t *testing.T) {
	counts := memstore.New()
	primaries := []*storefake.Store{{Store: counts}, {Store: counts}}
	var replicas []*replica
	for _, p := range primaries {
		replicas = append(replicas, newReplica(t, failover.New(p, memstore.New(), failover.WithThreshold(1),
			failover.WithProbe(time.Hour, time.Second))))
	}
	a, b := replicas[0], replicas[1]
	before := a.take(t, 10)
	for _, p := range primaries {
		p.FailWith(errors.New("down"))
	}
	during := a.take(t, 10)
	if e := b.use(t, "/v1/settle", during, 0); e.status != 421 ||
		!strings.Contains(e.problem.Detail, "memory of another process") {
		t.Errorf("another process: %d: %s", e.status, e.body)
	}
	e := a.use(t, "/v1/settle", during, 5)
	if e.status != 200 {
		t.Errorf("the process of the secondary: %d: %s", e.status, e.body)
	}
	a.left(t, "in the secondary", 95, 45)
	if e := a.use(t, "/v1/settle", during, 0); e.status != 409 {
		t.Errorf("again: %d: %s", e.status, e.body)
	}
	for _, r := range replicas {
		if e := r.use(t, "/v1/settle", before, 0); e.status != 503 ||
			!strings.Contains(e.problem.Detail, "can't be marked") {
			t.Errorf("a token of the primary, while it is out: %d: %s", e.status, e.body)
		}
	}
	c := newReplica(t, counts) // whose primary answers
	if e := c.use(t, "/v1/settle", before, 3); e.status != 200 {
		t.Errorf("a token of the primary: %d: %s", e.status, e.body)
	}
	c.left(t, "in the primary", 97, 47)
	if e := newReplica(t, counts).use(t, "/v1/settle", during, 0); e.status != 421 {
		t.Errorf("a process that came later: %d: %s", e.status, e.body)
	}
}

// Counts in memory without a shared store belong to one process.
func TestTokensInMemory(t *testing.T) {
	a, b := newReplica(t, nil), newReplica(t, nil)
	if e := b.use(t, "/v1/settle", a.take(t, 1), 0); e.status != 421 {
		t.Errorf("another process: %d: %s", e.status, e.body)
	}
}

// A crash between the mark and the settlement leaves the charge, and the token is used up.
func TestCrashBeforeSettlement(t *testing.T) {
	counts := memstore.New()
	dying := storefake.Store{Store: counts}
	dying.OnSettle = func(*storefake.Call) error { panic("killed") }
	a, b := newReplica(t, &dying), newReplica(t, counts)
	token := a.take(t, 10)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the process has lived on")
			}
		}()
		a.use(t, "/v1/settle", token, 0)
	}()
	if e := b.use(t, "/v1/settle", token, 0); e.status != 409 {
		t.Errorf("at another replica: %d: %s", e.status, e.body)
	}
	b.left(t, "after the crash", 90, 40)
}

// While the store fails, tokens can't be used, and nothing is settled. What passed without the store has a token that
// charges nothing.
func TestTokensWithoutAStore(t *testing.T) {
	s := storefake.New()
	r := newReplica(t, s)
	token := r.take(t, 10)
	s.FailWith(errors.New("down"))
	for _, path := range []string{"/v1/extend", "/v1/settle"} {
		if e := r.use(t, path, token, 20); e.status != 503 || e.problem.Token != "" {
			t.Errorf("%s: %d: %s", path, e.status, e.body)
		}
	}
	if e := r.post(t, "/v1/peek", `{"limiter": "policy", "key": "k"}`); e.status != 503 {
		t.Errorf("peek: %d: %s", e.status, e.body)
	}
	free := r.take(t, 10)
	closed := newReplicaOf(t, s, strings.Replace(tokens, "rate: 50/24h", "rate: 50/24h, failure: closed", 1))
	if e := closed.post(t, "/v1/take", `{"limiter": "policy", "key": "k"}`); e.status != 503 {
		t.Errorf("a take that fails closed: %d: %s", e.status, e.body)
	}
	s.FailWith(nil)
	for _, path := range []string{"/v1/extend", "/v1/settle"} {
		e := r.use(t, path, free, 20)
		if e.status != 200 || !e.said.Allowed || e.said.Token == "" {
			t.Errorf("%s of a permit without charges: %d: %s", path, e.status, e.body)
		}
		free = e.said.Token
	}
	r.left(t, "after the outage", 90, 40)
	if !strings.Contains(r.log.String(), "can't be marked as used") {
		t.Errorf("the log has %s", r.log.String())
	}

	s.OnSettle = func(*storefake.Call) error { return store.NotMade(errors.New("refused")) }
	e := r.use(t, "/v1/settle", token, 4)
	if e.status != 503 || e.problem.Token == "" {
		t.Errorf("a settlement that isn't made: %d: %s", e.status, e.body)
	}
	s.OnSettle = func(c *storefake.Call) error { _ = c.Pass(); return errors.New("the answer is lost") }
	if e = r.use(t, "/v1/settle", e.problem.Token, 4); e.status != 503 || e.problem.Token == "" {
		t.Errorf("a settlement whose answer is lost: %d: %s", e.status, e.body)
	}
	s.OnSettle = nil
	if e = r.use(t, "/v1/settle", e.problem.Token, 4); e.status != 503 {
		t.Errorf("the same again: %d: %s", e.status, e.body)
	}
	r.left(t, "after the settlements", 96, 46)
}

// What isn't a request gets a problem, and changes nothing.
func TestWrongRequests(t *testing.T) {
	r := newReplica(t, nil)
	token := r.take(t, 10)
	for _, tt := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/take", ``, 400, "isn't JSON"},
		{"/v1/take", `null`, 400, "isn't a JSON object"},
		{"/v1/take", `[]`, 400, "isn't a JSON object"},
		{"/v1/take", `{`, 400, "isn't JSON"},
		{"/v1/take", `{} {}`, 400, "isn't JSON"},
		{"/v1/take", `{"limiter": "policy", "key": "k",}`, 400, "isn't JSON"},
		{"/v1/take", "{\"limiter\": \"policy\", \"key\": \"\xff\"}", 400, "isn't JSON in UTF-8"},
		{"/v1/take", `{"limiter": "policy", "key": "\ud800"}`, 400, "U+FFFD"},
		{"/v1/take", `{"limiter": "policy"}`, 400, `"key" is missing`},
		{"/v1/take", `{"limiter": "policy", "key": "k", "Cost": 1}`, 400, `unknown field "Cost"`},
		{"/v1/take", `{"limiter": "policy", "key": "k", "key": "l"}`, 400, `"key" is given twice`},
		{"/v1/take", `{"limiter": "policy", "key": null}`, 400, "key isn't a string"},
		{"/v1/take", `{"limiter": "policy", "key": {"a": 1}}`, 400, "key isn't a string"},
		{"/v1/take", `{"limiter": "policy", "key": ""}`, 400, "the key is empty"},
		{"/v1/take", `{"limiter": "policy", "key": "` + strings.Repeat("x", 5000) + `"}`, 400, "the key is too long"},
		{"/v1/take", `{"limiter": "other", "key": "k"}`, 404, `no limiter "other"`},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": 0}`, 400, "out of range"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": -1}`, 400, "out of range"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": 1099511627777}`, 400, "out of range"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": 1.5}`, 400, "isn't a whole number"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": 1e3}`, 400, "isn't a whole number"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": 99999999999999999999}`, 400, "isn't a whole number"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": "1"}`, 400, "isn't a whole number"},
		{"/v1/take", `{"limiter": "policy", "key": "k", "cost": NaN}`, 400, "isn't JSON"},
		{"/v1/peek", `{"limiter": "policy", "key": "k", "cost": 1}`, 400, `unknown field "cost"`},
		{"/v1/settle", `{"token": "` + token + `", "cost": -1}`, 400, "out of range"},
		{"/v1/settle", `{"token": "` + token + `", "cost": 1, "limits": {}}`, 400, "limits isn't a list"},
		{"/v1/settle", `{"token": "` + token + `", "cost": 1, "limits": [1]}`, 400, "limits isn't a list"},
		{"/v1/settle", `{"token": "` + token + `", "cost": 1, "limits": []}`, 400, "limits is empty"},
		{"/v1/settle", `{"token": "` + token + `"}`, 400, `"cost" is missing`},
		{"/v1/extend", `{"token": 1, "cost": 1}`, 400, "token isn't a string"},
		{"/v1/take", `{"limiter": "policy", "key": "` + strings.Repeat("x", maxBody) + `"}`, 413, "65536 bytes"},
		{"/v1/reset", `{"limiter": "policy", "key": ""}`, 400, "the key is empty"},
		{"/v1/reset", `{"limiter": "policy", "key": "k", "limits": ["x"]}`, 400, `no limit "x"`},
		{"/v1/reset", `{"limiter": "policy", "key": "k", "limits": []}`, 400, "limits is empty"},
		{"/v1/ban", `{"limiter": "policy", "key": "k", "for_ms": 0}`, 400, "for_ms is out of range"},
		{"/v1/ban", `{"limiter": "policy", "key": "k", "for_ms": 31536000001}`, 400, "for_ms is out of range"},
		{"/v1/ban", `{"limiter": "policy", "key": "k", "for_ms": 1}`, 400, "there is no ban whose key isn't constant"},
		{"/v1/ban", `{"limiter": "policy", "key": "k", "for_ms": 1, "limits": []}`, 400, "limits is empty"},
	} {
		if e := r.post(t, tt.path, tt.body); e.status != tt.status || e.problem.Status != tt.status ||
			!strings.Contains(e.problem.Detail, tt.want) {
			t.Errorf("%s %.100s: %d: %s, want %d and %s", tt.path, tt.body, e.status, e.body, tt.status, tt.want)
		}
	}
	for _, tt := range []struct {
		change func(*http.Request)
		status int
	}{
		{func(q *http.Request) { q.Method = "GET" }, 405},
		{func(q *http.Request) { q.Method = "PUT" }, 405},
		{func(q *http.Request) { q.Header.Del("Content-Type") }, 415},
		{func(q *http.Request) { q.Header.Set("Content-Type", "text/plain") }, 415},
		{func(q *http.Request) { q.Header.Set("Content-Type", "application/json; charset=utf-8") }, 200},
		{func(q *http.Request) { q.RemoteAddr = "203.0.113.1:1" }, 403},
		{func(q *http.Request) { q.RemoteAddr = "" }, 403},
	} {
		q := r.request("POST", "/v1/peek", `{"limiter": "policy", "key": "k"}`)
		tt.change(q)
		if e := r.send(t, q); e.status != tt.status {
			t.Errorf("%s with %v from %s: %d, want %d", q.Method, q.Header, q.RemoteAddr, e.status, tt.status)
		}
	}
	r.left(t, "after all of them", 90, 40)
	if e := r.use(t, "/v1/settle", token, 10); e.status != 200 {
		t.Errorf("the token is used: %d: %s", e.status, e.body)
	}
}

// Operators reset and ban keys, with the live page's token.
func TestAdminOfTokens(t *testing.T) {
	r := newReplicaOf(t, nil, tokens+"  - {name: bans, ban: 5/1h, for: 1h}\n")
	r.take(t, 10)
	if e := r.post(t, "/v1/ban", `{"limiter": "policy", "key": "k", "for_ms": 60000, "limits": ["bans"]}`); e.status != 204 || e.body != "" {
		t.Errorf("ban: %d: %s", e.status, e.body)
	}
	if e := r.post(t, "/v1/take", `{"limiter": "policy", "key": "k"}`); e.said.Allowed ||
		*e.said.Limits[2].RetryAfter > 60000 {
		t.Errorf("a banned key: %d: %s", e.status, e.body)
	}
	for _, found := range []string{`{"found":true}`, `{"found":false}`} {
		if e := r.post(t, "/v1/reset", `{"limiter": "policy", "key": "k"}`); e.status != 200 || e.body != found {
			t.Errorf("reset: %d: %s, want %s", e.status, e.body, found)
		}
	}
	r.left(t, "after the reset", 100, 50)
	for _, path := range []string{"/v1/reset", "/v1/ban"} {
		for _, authorization := range []string{"", "Bearer", "Bearer a token of sixteen byte", adminToken,
			"Basic " + adminToken} {
			q := r.request("POST", path, `{"limiter": "policy", "key": "k", "for_ms": 1}`)
			q.Header.Set("Authorization", authorization)
			if e := r.send(t, q); e.status != 401 {
				t.Errorf("%s with %q: %d: %s", path, authorization, e.status, e.body)
			}
		}
		q, w := r.request("POST", path, `{"limiter": "policy", "key": "k"}`), httptest.NewRecorder()
		if r.api.ServeHTTP(w, q); w.Code != 404 {
			t.Errorf("%s on the clients' listener: %d", path, w.Code)
		}
	}
}

// What a token has is read as it was written, and nothing else is read.
func FuzzTokenParts(f *testing.F) {
	r := newReplica(f, nil)
	for _, cost := range []int{1, 10, 50} {
		data, err := base64.RawURLEncoding.DecodeString(r.take(f, cost))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[32:])
		if _, err := r.limiter.Reset(f.Context(), "k"); err != nil {
			f.Fatal(err)
		}
	}
	f.Add([]byte{})
	f.Add([]byte{tokenFormat})
	f.Fuzz(func(t *testing.T, data []byte) {
		var read, again permitToken
		if !read.decode(data) {
			return
		}
		if !again.decode(read.append(nil)) || !reflect.DeepEqual(read, again) {
			t.Errorf("%+v is read as %+v", read, again)
		}
		// However strange, sealed or not, it ends in an answer.
		read.limiter, read.end, read.process = "policy", time.Now().Add(time.Hour), r.api.own
		text, err := r.api.sealer.seal(&read)
		if err != nil {
			return
		}
		if e := r.use(t, "/v1/extend", text, 3); e.status != 200 && e.status != 400 {
			t.Errorf("%d: %s", e.status, e.body)
		}
	})
}

// Any body gets an answer, and what is decided is an object of the fields.
func FuzzBody(f *testing.F) {
	for _, body := range []string{`{"limiter": "policy", "key": "k", "cost": 1}`, `{"key": "k", "limits": ["a"]}`,
		`{"key": 1e9}`, `[`, "\xff", `{"a":{"b":[{}]}}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var key string
		var cost int64
		var limits []string
		if p := parseBody(data, required("key", &key), optional("cost", &cost), optional("limits", &limits)); p != nil {
			if p.Status != 400 || p.Detail == "" {
				t.Errorf("%q: %+v", data, p)
			}
			return
		}
		var want struct {
			Key    string
			Cost   int64
			Limits []string
		}
		if err := json.Unmarshal(data, &want); err != nil || want.Key != key || want.Cost != cost ||
			fmt.Sprint(want.Limits) != fmt.Sprint(limits) {
			t.Errorf("%q: %q, %d, %q, want %+v: %v", data, key, cost, limits, want, err)
		}
	})
}

// postTo sends a request over the network, and returns the status and the body.
func postTo(t testing.TB, address fmt.Stringer, path, body string) (status int, said string) {
	t.Helper()
	q, err := http.NewRequest("POST", "http://"+address.String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// A server has the limits of each file under its name, shares those of one file with forward auth, and has what is for
// operators on the admin listener only.
func TestListenAPI(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.yml")
	if err := os.WriteFile(other, []byte("version: 1\nkey: global\nlimits: [{name: all, quota: 1/500d}]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	onlyAPI := func(c *Config) {
		c.Proxy, c.APIAddr, c.TokenLife, c.Secret, c.Token = "", "127.0.0.1:0", time.Hour,
			[]byte("a secret of sixteen bytes"), adminToken
	}
	s, _ := start(t, tokens, func(c *Config) { onlyAPI(c); c.Policies = append(c.Policies, other) })
	const key = `{"limiter": "policy", "key": "k"}`
	for _, tt := range []struct {
		to         fmt.Stringer
		path, body string
		status     int
		want       string
	}{
		{s.APIAddr, "/v1/take", key, 200, `"remaining":99`},
		{s.APIAddr, "/v1/take", `{"limiter": "other", "key": "k"}`, 200, `"allowed":true`},
		{s.APIAddr, "/v1/take", `{"limiter": "other", "key": "l"}`, 200, `"allowed":false`},
		{s.APIAddr, "/v1/reset", key, 404, ""},
		{s.APIAddr, "/metrics", "", 404, ""},
		{s.AdminAddr, "/v1/take", key, 404, ""},
		{s.AdminAddr, "/v1/reset", key, 200, `"found":true`},
		{s.APIAddr, "/v1/take", key, 200, `"remaining":99`},
	} {
		if status, said := postTo(t, tt.to, tt.path, tt.body); status != tt.status || !strings.Contains(said, tt.want) {
			t.Errorf("%s %s: %d: %s", tt.path, tt.body, status, said)
		}
	}
	token := func(path, body string) string { // whose answer observers are notified of, too
		t.Helper()
		status, said := postTo(t, s.APIAddr, path, body)
		var got decisionBody
		if err := json.Unmarshal([]byte(said), &got); err != nil || status != 200 || !got.Allowed {
			t.Fatalf("%s: %d: %s", path, status, said)
		}
		return got.Token
	}
	raised := token("/v1/extend", `{"cost": 20, "token": "`+token("/v1/take", key)+`"}`)
	token("/v1/settle", `{"cost": 10, "token": "`+raised+`"}`)
	if _, body := admin(t, s, "/metrics"); !strings.Contains(body, `stint_limit="calls"`) {
		t.Errorf("the metrics have %.2000s", body)
	}
	if status, body := admin(t, s, "/console/"); status != 200 || !strings.Contains(body, "calls") {
		t.Errorf("the live page: %d: %.2000s", status, body)
	}

	s, _ = start(t, shop, func(c *Config) { onlyAPI(c); c.Proxy, c.Token = "nginx", "" })
	if status, said := postTo(t, s.APIAddr, "/v1/take", `{"limiter": "policy", "key": "192.0.2.7"}`); status != 200 ||
		!strings.Contains(said, `"allowed":true`) {
		t.Errorf("a client's address as the key: %d: %s", status, said)
	}
	for _, want := range []int{200, 403} {
		if got := ask(t, s, get("/a")); got != want {
			t.Errorf("the same client through nginx: %d, want %d", got, want)
		}
	}
	if status, _ := postTo(t, s.AdminAddr, "/v1/reset", key); status != 404 {
		t.Errorf("without a token, reset answers %d", status)
	}
}

func TestListenAPIErrors(t *testing.T) {
	one, folder := file(t, tokens), t.TempDir()
	same := filepath.Join(folder, "policy.yml")
	if err := os.WriteFile(same, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		policies []string
		proxy    string
		want     string
	}{
		{[]string{one, same}, "", "two files have the name policy"},
		{[]string{file(t, "version: 1\nkey: remote-ip\nroutes: {/a: {limits: [{name: a, rate: 1/1s}]}}\n")}, "",
			"in routes only"},
		{[]string{one}, "nginx", "given: a proxy's request has no given key"},
		{[]string{file(t, "version: 1\nkey: given\nlimits: [{name: a, concurrency: 1}]\n")}, "",
			"nothing would release its slots"},
		{nil, "", "--listen-api needs a file without a domain"},
	} {
		_, err := Start(t.Context(), Config{
			Policies: tt.policies, Proxy: tt.proxy, AuthAddr: "127.0.0.1:0", APIAddr: "127.0.0.1:0",
			TokenLife: time.Hour,
			Secret:    []byte("a secret of sixteen bytes"), Trust: Private, Logger: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.policies, err, tt.want)
		}
	}
}
