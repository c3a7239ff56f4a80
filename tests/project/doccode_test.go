package project

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/tests/doctest"
)

// taken are the names that the code of a document takes for granted: the reader's own.
var taken = map[string]string{
	"": `
		var (
			ctx    context.Context
			lim    *stint.Limiter
			rdb    *redis.Client
			mux    *http.ServeMux
			addr   string
			n      int64
			key    stint.Key
			berlin   *time.Location
			customer struct{ Since time.Time }

			user, account stint.Key
			handler                http.Handler
			cloudflare             []netip.Prefix
			upstream               *url.URL
			admitted, wouldDeny  atomic.Int64
		)
		func hasAPIKey(*http.Request) bool`,
	"docs/keys.md": `
		var (
			r, e         interface{ Use(...any) }
			authenticate any
		)
		type user struct{ UserID string }
		func sessionOf(context.Context) user`,
	"docs/coming-from.md": `
		var (
			ctx     context.Context
			err     error
			key     string
			lim     *stint.Limiter
			limit   stint.Limit
			permit  *stint.Permit
			rdb     *redis.Client
			mux     *http.ServeMux
			trusted []netip.Prefix
			cost    func(*http.Request) int64
			who     stint.Key
			skip    func(*http.Request) bool
			observe func(stint.Event)
			resolve func(*http.Request) (string, error)
			blocked func(*http.Request) bool
			limits  func(*http.Request) ([]stint.Limit, error)

			next, handler http.Handler
		)`,
	"docs/recipes.md": `
		type job struct{ Tenant string }

		var (
			ctx     context.Context
			lim     *stint.Limiter
			rdb     *redis.Client
			mux     *http.ServeMux
			r       *gin.Engine
			e       *echo.Echo
			plans   *tenants.Cache
		)
		func work(job) error
		func sold(context.Context, string) (int64, error)
		func raisedUntil(context.Context, string) (time.Time, error)
		func estimate(*http.Request) int64
		func complete(*http.Request) (text string, used int64)`,
	"docs/rollout.md": `
		var (
			lim  *stint.Limiter
			user stint.Key

			admitted, wouldDeny atomic.Int64
		)`,
	"docs/stores.md": `
		type Store struct{}
		func (*Store) update(func(*transaction) error) error

		type transaction struct{ now store.Now }
		func (*transaction) get(state, key string) []byte
		func (*transaction) put(state, key string, data []byte, lifetime time.Duration)
		func (*transaction) remove(state, key string)

		func newStore(*testing.T) store.Store`,
	"docs/waiting.md": `
		var (
			ctx    context.Context
			lim    *stint.Limiter
			queued atomic.Int64
			waited interface{ Observe(time.Duration) }
		)`,
}

// Go code in documents compiles: whole programs are compiled (TestProgramsCompile), and
// parts of programs are compiled together with the declarations they assume.
func TestDocumentsCompile(t *testing.T) {
	c := doctest.New(t,
		"context", "fmt", "log", "log/slog", "os", "net", "net/http", "net/http/httputil", "net/netip", "net/url", "sync/atomic", "time", "errors", "strings", "testing",
		"github.com/gin-gonic/gin", "github.com/labstack/echo/v4", "github.com/redis/go-redis/v9",
		module, module+"/store", module+"/store/memstore", module+"/store/redisstore", module+"/store/failover", module+"/store/storetest",
		module+"/console", module+"/tenants",
		"stinthttp "+module+"/adapters/std", "stintgin "+module+"/adapters/gin", "stintecho "+module+"/adapters/echo")
	for _, doc := range documents(t) {
		text := read(t, doc)
		names, own := taken[doc]
		if !own {
			names = taken[""]
		}
		for _, code := range doctest.Blocks(text, "") {
			if err := c.Check(names, code); err != nil {
				t.Errorf("%s: %v\n%s", doc, err, code)
			}
		}
		if doc == "docs/coming-from.md" { // the calls of Go libraries are compiled in benchmarks
			for _, code := range doctest.Column(text, 1) {
				if err := c.Check(names, code); err != nil {
					t.Errorf("%s: %v\n%s", doc, err, code)
				}
			}
		}
		for _, dir := range doctest.Modules(text) {
			tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
			if !slices.ContainsFunc(tests, func(file string) bool {
				return strings.Contains(read(t, file), "doctest.") || strings.Contains(read(t, file), "```go "+dir)
			}) {
				t.Errorf("%s: code for %s, where no test compiles it", doc, dir)
			}
		}
	}
}
