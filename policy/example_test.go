package policy_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
	"github.com/stint-go/stint/policy"
)

func ExampleParse() {
	p, err := policy.Parse("limits.yaml", []byte(`
version: 1
key: remote-ip
limits:
  - {name: per-client, rate: 100/1m, burst: 20}
routes:
  POST /login: {limits: [{name: login, rate: 5/1m}]}
  GET /healthz: {exempt: true}
`))
	if err != nil {
		log.Fatal(err)
	}
	limits := stint.Must(stint.New(p.Options()...))
	handler := stinthttp.Middleware(limits)(http.NotFoundHandler())

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
	fmt.Println(w.Header().Get("RateLimit-Policy"))
	// Output: "per-client";q=100;w=60, "login";q=5;w=60
}

func ExampleParse_mistakes() {
	_, err := policy.Parse("limits.yaml", []byte(`
version: 1
limits:
  - {rate: 100/1min, burts: 20}
  - {name: daily, quota: 1000/daily, in: Europe/Berlni}
`))
	fmt.Println(err)
	// Output:
	// limits.yaml:4:5: a limit without a key, and no default is safe: write a key here or at the top, such as remote-ip, behind a proxy {forwarded-ip: {trusted: [...]}}, or global for all requests together
	// limits.yaml:4:12: duration "1min": write numbers with the units ns, us, ms, s, m, h, d or w, such as 1h30m
	// limits.yaml:4:22: unknown field "burts" of a limit: write burst
	// limits.yaml:5:5: a limit without a key, and no default is safe: write a key here or at the top, such as remote-ip, behind a proxy {forwarded-ip: {trusted: [...]}}, or global for all requests together
	// limits.yaml:5:42: unknown time zone "Europe/Berlni": write UTC or a name such as Europe/Berlin; a program without a zone database imports time/tzdata
}

// Plans are chosen by a function of the application, and keys of its own are
// named in the file.
func ExampleWithPlanFunc() {
	p, err := policy.Parse("limits.yaml", []byte(`
version: 1
key: tenant
plans:
  free: {limits: [{name: requests, quota: 100/daily}]}
  pro: {limits: [{name: requests, quota: 10_000/daily}]}
default-plan: free
`),
		policy.WithKey("tenant", stint.KeyFunc(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })),
		policy.WithPlanFunc(func(r *http.Request) (string, error) {
			return map[string]string{"acme": "pro"}[r.Header.Get("X-Tenant")], nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	handler := stinthttp.New(p.Options()...)(http.NotFoundHandler())
	for _, tenant := range []string{"acme", "globex"} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("X-Tenant", tenant)
		handler.ServeHTTP(w, r)
		fmt.Println(tenant, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// acme "requests";q=10000;w=86400
	// globex "requests";q=100;w=86400
}

// A file is followed for as long as the context lives.
func ExampleWatch() {
	dir, err := os.MkdirTemp("", "policy")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "policy.yaml")
	put := func(text string) {
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil { // never seen half written
			log.Fatal(err)
		}
	}
	put("version: 1\nkey: global\nlimits: [{rate: 10/1m}]\n")

	p, err := policy.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	limits := stint.Must(stint.New(p.Options()...))

	ctx, stop := context.WithCancel(context.Background())
	changes := make(chan policy.Change, 1)
	watcher, err := policy.Watch(ctx, path, limits, policy.WithObserver(func(c policy.Change) { changes <- c }))
	if err != nil {
		log.Fatal(err)
	}
	put("version: 1\nkey: global\nlimits: [{rate: 20/1m}]\n")
	fmt.Println("in force:", (<-changes).Policy != nil)
	d, _ := limits.Peek(ctx, "k")
	fmt.Println("limit:", d.Limits[0].Capacity)

	stop()
	<-watcher.Done()
	// Output:
	// in force: true
	// limit: 20
}

func ExampleSchema() {
	// For an editor: a file that starts with
	//	# yaml-language-server: $schema=policy.schema.json
	// is checked and completed while it is written.
	path := filepath.Join(os.TempDir(), "policy.schema.json")
	defer os.Remove(path)
	fmt.Println(os.WriteFile(path, policy.Schema(), 0o600))
	// Output: <nil>
}
