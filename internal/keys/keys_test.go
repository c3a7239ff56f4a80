package keys

import (
	"net/http"
	"net/netip"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/clientip"
	"github.com/stint-go/stint/internal/optionerror"
)

func forwarded(t *testing.T, trusted ...string) *Key {
	t.Helper()
	s := clientip.Source{Header: "x-forwarded-for"}
	for _, p := range trusted {
		s.Trusted = append(s.Trusted, netip.MustParsePrefix(p))
	}
	k, wrong := Address(s)
	if wrong != nil {
		t.Fatal(wrong)
	}
	return k
}

// Keys are equal if and only if their descriptions are.
func TestEqual(t *testing.T) {
	secret, mux := make([]byte, 32), http.NewServeMux()
	f := func(*http.Request) (string, error) { return "k", nil }
	own := FromFunc("KeyFunc", f)
	kept := map[*Key]int{}
	for i, make := range []func() *Key{
		func() *Key { return Global },
		func() *Key { return Given },
		func() *Key { return Pattern },
		func() *Key { return Method },
		func() *Key { return RemoteIP },
		func() *Key { return Header("X-Key") },
		func() *Key { return Header("X-Other") },
		func() *Key { return Cookie("X-Key") },
		func() *Key { return MuxPattern(mux) },
		func() *Key { return forwarded(t, "10.0.0.0/8") },
		func() *Key { return forwarded(t, "10.0.0.0/8", "192.0.2.0/24") },
		func() *Key { return own },
		func() *Key { return Join([]*Key{Method}) },
		func() *Key { return Join([]*Key{Header("X-Key"), Method}) },
		func() *Key { return Join([]*Key{Method, Header("X-Key")}) },
		func() *Key { return Join([]*Key{own, forwarded(t, "10.0.0.0/8")}) },
		func() *Key { return FirstOf([]*Key{Header("X-Key"), Method}) },
		func() *Key { return Hash(secret, Header("X-Key")) },
		func() *Key { return Hash(append(secret, 1), Header("X-Key")) },
		func() *Key { return Hash(secret, Join([]*Key{Header("X-Key"), Method})) },
	} {
		a, b := make(), make()
		if a != b {
			t.Errorf("%s: two keys", a.Name)
		}
		if other, taken := kept[a]; taken {
			t.Errorf("%s: key %d is key %d", a.Name, i, other)
		}
		kept[a] = i
	}
	if a, b := forwarded(t, "192.0.2.0/24", "10.1.2.3/8"), forwarded(t, "10.0.0.0/9", "192.0.2.0/24", "10.128.0.0/9"); a != b {
		t.Errorf("%s and %s trust the same networks", a.Name, b.Name)
	}
	if same, _ := Address(clientip.Source{IPv6Bits: 64}); same != RemoteIP {
		t.Errorf("%s isn't RemoteIP", same.Name)
	}
	for _, make := range []func() *Key{
		func() *Key { return FromFunc("KeyFunc", f) },
		func() *Key { return FromAdapterFunc("ours", f) },
		func() *Key { return MuxPattern(http.NewServeMux()) },
		func() *Key { return Invalid(optionerror.List{{Option: "Header"}}) },
	} {
		if a, b := make(), make(); a == b {
			t.Errorf("%s: one key", a.Name)
		}
	}
}

func TestNames(t *testing.T) {
	ip := func(s clientip.Source) *Key { k, _ := Address(s); return k }
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, tt := range []struct {
		k    *Key
		want string
	}{
		{Header("X-Key"), `Header("X-Key")`},
		{RemoteIP, "RemoteIP()"},
		{forwarded(t, "10.0.0.0/8", "192.0.2.0/24"), "ForwardedIP(10.0.0.0/8, 192.0.2.0/24)"},
		{ip(clientip.Source{Header: "forwarded", Trusted: ten}), `HeaderIP("Forwarded", 10.0.0.0/8)`},
		{ip(clientip.Source{Header: "x-real-ip", Trusted: ten}), `HeaderIP("X-Real-Ip", 10.0.0.0/8)`},
		{ip(clientip.Source{IPv6Bits: 56}), "IP{IPv6Bits: 56}"},
		{ip(clientip.Source{Header: "X-Forwarded-For", TrustUnix: true}), `IP{Header: "X-Forwarded-For", TrustUnix: true}`},
		{FromAdapterFunc("stintgin", nil), "stintgin.Key"},
		{Hash([]byte("a secret that nobody may read"), FirstOf([]*Key{Cookie("session"), RemoteIP})), `Hash(FirstOf(Cookie("session"), RemoteIP()))`},
	} {
		if tt.k.Name != tt.want {
			t.Errorf("%s, want %s", tt.k.Name, tt.want)
		}
	}
}

// A key says what of a request it is read from.
func TestReads(t *testing.T) {
	secret, f := make([]byte, 32), func(*http.Request) (string, error) { return "k", nil }
	for _, tt := range []struct {
		k    *Key
		want Reads
	}{
		{Global, Reads{}},
		{Method, Reads{}},
		{Given, Reads{Given: true}},
		{Pattern, Reads{Router: true}},
		{RemoteIP, Reads{Peer: true}},
		{forwarded(t, "10.0.0.0/8"), Reads{Peer: true, Fields: []string{"X-Forwarded-For"}}},
		{Header("X-Key"), Reads{Fields: []string{"X-Key"}}},
		{Cookie("session"), Reads{Fields: []string{"Cookie"}}},
		{MuxPattern(http.NewServeMux()), Reads{Host: true}},
		{FromFunc("KeyFunc", f), Reads{Function: true}},
		{Hash(secret, Join([]*Key{FirstOf([]*Key{Header("X-Key"), RemoteIP}), Header("X-Key"), Cookie("a")})), Reads{Peer: true, Fields: []string{"X-Key", "Cookie"}}},
	} {
		if !reflect.DeepEqual(tt.k.Reads, tt.want) {
			t.Errorf("%s reads %+v, want %+v", tt.k.Name, tt.k.Reads, tt.want)
		}
	}
}

// A key that is no longer in use leaves nothing behind.
func TestTableForgets(t *testing.T) {
	d := description{name: `Header("X-Forgotten")`}
	k := Header("X-Forgotten")
	if _, there := table.Load(d); !there {
		t.Fatal("the key isn't in the table")
	}
	runtime.KeepAlive(k)
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		if _, there := table.Load(d); !there {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the key stays in the table")
		}
		runtime.Gosched()
	}
}

// Goroutines that make equal keys at once make one.
func TestTableConcurrently(t *testing.T) {
	for range 200 {
		made := make(chan *Key)
		for range 4 {
			go func() { made <- Join([]*Key{Header("X-Shared"), Cookie("shared")}) }()
		}
		first := <-made
		for range 3 {
			if k := <-made; k != first {
				t.Fatal("two keys for one description")
			}
		}
	}
}
