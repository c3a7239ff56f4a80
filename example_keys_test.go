package stint_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/stint-go/stint"
)

func ExampleKeyFunc() {
	type session struct{ User string }
	sessions := map[string]session{"s1": {User: "ada"}}

	var key stint.KeyFunc = func(r *http.Request) (string, error) {
		c, err := r.Cookie("session")
		if err != nil {
			return "", nil // nobody: answered as WithEmptyKey says
		}
		return sessions[c.Value].User, nil
	}

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "session=s1")
	fmt.Println(key(r))
	// Output: ada <nil>
}

func ExampleRemoteIP() {
	key := stint.RemoteIP()
	for _, peer := range []string{
		"192.0.2.7:49152",
		"[::ffff:192.0.2.7]:49152",
		"[2001:db8:1:2:aaaa::1]:49152",
		"[2001:db8:1:2:bbbb::9]:49152",
		"@", // a Unix socket
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = peer
		fmt.Println(key(r))
	}
	// Output:
	// 192.0.2.7 <nil>
	// 192.0.2.7 <nil>
	// 2001:db8:1:2::/64 <nil>
	// 2001:db8:1:2::/64 <nil>
	// unknown <nil>
}

func ExampleForwardedIP() {
	key := stint.ForwardedIP(netip.MustParsePrefix("10.0.0.0/8"))

	// The client claims to be 8.8.8.8. The outer proxy appends where the
	// request came from, and the inner one where the outer one is.
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.2:49152"
	r.Header.Set("X-Forwarded-For", "8.8.8.8, 203.0.113.9, 10.0.0.1")
	fmt.Println(key(r))

	// Not from a proxy: what the header says doesn't matter.
	r.RemoteAddr = "198.51.100.20:49152"
	fmt.Println(key(r))
	// Output:
	// 203.0.113.9 <nil>
	// 198.51.100.20 <nil>
}

func ExampleForwardedHeaderIP() {
	key := stint.ForwardedHeaderIP(netip.MustParsePrefix("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.2:49152"
	r.Header.Set("Forwarded", `for=8.8.8.8, for="[2001:db8:1:2::9]:4711";proto=https`)
	fmt.Println(key(r))
	// Output: 2001:db8:1:2::/64 <nil>
}

func ExampleSingleIPHeader() {
	key := stint.SingleIPHeader("X-Real-IP", netip.MustParsePrefix("10.0.0.0/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.2:49152"
	r.Header.Set("X-Real-IP", "203.0.113.9")
	fmt.Println(key(r))

	// Two lines: somebody else has written one of them.
	r.Header.Add("X-Real-IP", "8.8.8.8")
	fmt.Println(key(r))
	// Output:
	// 203.0.113.9 <nil>
	// 10.0.0.2 <nil>
}

// A provider that gives each customer a /56, with a local proxy on a Unix
// socket in front.
func ExampleIP() {
	key := stint.IP{
		Header:    "X-Forwarded-For",
		TrustUnix: true,
		IPv6Bits:  56,
	}.Key()

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8:1:2ff::9]:49152"
	fmt.Println(key(r))
	// Output: 2001:db8:1:200::/56 <nil>
}

func ExampleIP_Key() {
	key := stint.IP{IPv6Bits: 128}.Key()

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "[2001:db8::9]:49152"
	fmt.Println(key(r))
	// Output: 2001:db8::9/128 <nil>
}

func ExampleHeader() {
	key := stint.Header("X-API-Key")

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-API-Key", "k-42")
	fmt.Println(key(r))
	// Output: k-42 <nil>
}

func ExampleCookie() {
	key := stint.Cookie("session")

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Cookie", "theme=dark; session=s1")
	fmt.Println(key(r))
	// Output: s1 <nil>
}

func ExamplePattern() {
	key := stint.Pattern()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(key(r))
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/7", nil))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/users/8", nil))
	// Output:
	// GET /users/{id} <nil>
	// GET /users/{id} <nil>
}

func ExampleMuxPattern() {
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", http.NotFoundHandler())
	key := stint.MuxPattern(mux)

	fmt.Println(key(httptest.NewRequest("GET", "/users/7", nil)))
	fmt.Println(key(httptest.NewRequest("GET", "/guess/1", nil)))
	fmt.Println(key(httptest.NewRequest("GET", "/guess/2", nil)))
	// Output:
	// GET /users/{id} <nil>
	// unmatched <nil>
	// unmatched <nil>
}

func ExampleMethod() {
	key := stint.Method()
	fmt.Println(key(httptest.NewRequest("POST", "/", nil)))
	fmt.Println(key(httptest.NewRequest("MADEUP", "/", nil)))
	// Output:
	// POST <nil>
	// other <nil>
}

func ExampleGlobal() {
	key := stint.Global()
	a, _ := key(httptest.NewRequest("GET", "/a", nil))
	b, _ := key(httptest.NewRequest("POST", "/b", nil))
	fmt.Println(a == b)
	// Output: true
}

func ExampleJoin() {
	key := stint.Join(stint.Header("X-Tenant"), stint.Method())

	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Tenant", "acme")
	fmt.Println(key(r))

	// Half a key is none.
	r.Header.Del("X-Tenant")
	k, err := key(r)
	fmt.Printf("%q %v\n", k, err)
	// Output:
	// 4:acme3:GET <nil>
	// "" <nil>
}

func ExampleHash() {
	secret := []byte("32 random bytes from your config") // never in the source
	key := stint.Hash(secret, stint.RemoteIP())

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.7:49152"
	k, err := key(r)
	fmt.Println(len(k), err)
	// Output: 22 <nil>
}

func ExampleFromCIDR() {
	internal := stint.FromCIDR(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"))

	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.1.2.3:49152"
	fmt.Println(internal(r))

	r.RemoteAddr = "192.0.2.7:49152"
	r.Header.Set("X-Forwarded-For", "10.1.2.3") // not looked at
	fmt.Println(internal(r))
	// Output:
	// true
	// false
}

func ExamplePreflight() {
	r := httptest.NewRequest("OPTIONS", "/", nil)
	fmt.Println(stint.Preflight(r))

	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", "PUT")
	fmt.Println(stint.Preflight(r))
	// Output:
	// false
	// true
}
