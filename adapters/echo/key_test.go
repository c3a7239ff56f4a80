package stintecho

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/stint-go/stint"
)

// session is an application's own context, which its middleware puts around echo's.
type session struct {
	echo.Context
	user string
}

func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error { return next(&session{c, c.Request().Header.Get("X-User")}) }
}

var user = Key(func(c echo.Context) (string, error) { return c.(*session).user, nil })

func asUser(h http.Handler, name string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-User", name)
	h.ServeHTTP(w, r)
	return w
}

// echo reuses its contexts. A request or a context that is kept after its request must not lead
// to the echo context of a later request.
func TestKeyLetsGo(t *testing.T) {
	var kept []context.Context
	readable := func(ctx context.Context) error {
		if got, err := user.Of(httptest.NewRequest("GET", "/", nil).WithContext(ctx)); got != "ada" || err != nil {
			return errors.New("got " + got)
		}
		return nil
	}
	e := echo.New()
	e.Use(authenticate, New(stint.Rate(1, time.Hour),
		stint.WithObserver(func(e stint.Event) {
			if e.Request != nil {
				kept = append(kept, e.Request.Context())
			}
		}),
		stint.WithKey(stint.Join(user, stint.KeyFunc(func(r *http.Request) (string, error) {
			kept = append(kept, r.Context())
			return "k", readable(r.Context()) // until the request ends it is there
		})))))
	e.GET("/", func(c echo.Context) error {
		kept = append(kept, c.Request().Context())
		for _, ctx := range kept {
			if err := readable(ctx); err != nil {
				t.Errorf("while the handler runs: %v", err)
			}
		}
		if stint.FromContext(c.Request().Context()) == nil {
			t.Error("the permit is gone with it")
		}
		return nil
	})
	kept = nil // New has called the key functions
	for _, want := range []int{200, 429} {
		if w := asUser(e, "ada"); w.Code != want {
			t.Fatalf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	if len(kept) != 5 {
		t.Fatalf("%d contexts were kept", len(kept))
	}
	for i, ctx := range kept {
		if readable(ctx) == nil {
			t.Errorf("context %d still leads to echo's", i)
		}
	}
}

// Key functions and the handler see the same request: what a key has parsed of the
// body, through echo's context or the request, is parsed for all.
func TestKeyReadsTheBody(t *testing.T) {
	form := Key(func(c echo.Context) (string, error) { return c.FormValue("name"), nil })
	ofRequest := func(r *http.Request) (string, error) { return r.FormValue("name"), nil }
	for name, k := range map[string]stint.Key{
		"echo's":               form,
		"echo's, then another": stint.Join(form, stint.KeyFunc(ofRequest)),
		"another, then echo's": stint.Join(stint.KeyFunc(ofRequest), form),
	} {
		e := echo.New()
		e.Use(New(stint.Rate(9, time.Hour), stint.WithKey(k)))
		e.POST("/", func(c echo.Context) error {
			var f struct {
				Name string `form:"name"`
			}
			if err := c.Bind(&f); err != nil || f.Name != "ada" || c.Request().FormValue("name") != "ada" {
				t.Errorf("%s: the handler reads %q, %q: %v", name, f.Name, c.Request().FormValue("name"), err)
			}
			return nil
		})
		r := httptest.NewRequest("POST", "/", strings.NewReader("name=ada"))
		r.Header.Set(echo.HeaderContentType, echo.MIMEApplicationForm)
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

func TestKeyNil(t *testing.T) {
	if _, err := stint.New(stint.Rate(1, time.Hour), stint.WithKey(Key(nil))); err == nil || !strings.Contains(err.Error(), "WithKey(KeyFunc(nil)): pass a function") {
		t.Error(err)
	}
}

// A request that has come another way has no such key, and the error says what to write.
func TestKeyElsewhere(t *testing.T) {
	var failed error
	l := stint.Must(stint.New(stint.Rate(1, time.Hour), stint.WithKey(user), stint.WithObserver(func(e stint.Event) {
		if e.Kind == stint.EventKeyFailed {
			failed = e.Err
		}
	})))
	w := httptest.NewRecorder()
	l.Serve(w, httptest.NewRequest("GET", "/", nil), func(http.ResponseWriter, *http.Request) { t.Error("it was admitted") })
	want := "stint: limit rate: stintecho.Key: the request has not come through stintecho: mount the limiter with stintecho"
	if w.Code != 500 || failed == nil || !strings.HasPrefix(failed.Error(), want) {
		t.Errorf("got %d, %v", w.Code, failed)
	}
}

// A key reads the same value as the application, however a client spells the request.
func TestKeysReadAsEcho(t *testing.T) {
	for name, tt := range map[string]struct {
		key  stint.Key
		read func(echo.Context) string
	}{
		"Cookie": {stint.Cookie("session"), func(c echo.Context) string {
			v, err := c.Cookie("session")
			if err != nil {
				return ""
			}
			return v.Value
		}},
		"Header": {stint.Header("X-API-Key"), func(c echo.Context) string { return c.Request().Header.Get("x-api-key") }},
		"Query": {stint.KeyFunc(func(r *http.Request) (string, error) { return r.URL.Query().Get("user"), nil }),
			func(c echo.Context) string { return c.QueryParam("user") }},
		"Param": {Key(func(c echo.Context) (string, error) { return c.Param("id"), nil }), func(c echo.Context) string { return c.Param("id") }},
	} {
		var read, key string
		e := echo.New()
		e.Use(New(stint.Rate(1000, time.Hour), stint.WithEmptyKey(stint.SkipEmptyKey), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			k, err := tt.key.Of(r)
			key = k
			return k, err
		}))))
		e.GET("/users/:id", func(c echo.Context) error {
			read = tt.read(c)
			return nil
		})
		for _, value := range []string{"a", "%61", "a%20b", "a+b", "%zz", "%2F", "%252F", `"a"`, `"%61"`, "a;b", "a&b", "%00"} {
			u := "/users/" + value + "?user=" + value + "&user=other"
			parsed, err := url.ParseRequestURI(u)
			if err != nil {
				parsed = &url.URL{Path: "/users/x", RawQuery: "user=" + value}
			}
			r := httptest.NewRequest("GET", "/", nil)
			r.URL, r.RequestURI = parsed, u
			r.Header["X-Api-Key"] = []string{value, "other"}
			r.Header.Set("Cookie", "x=y; session="+value+"; session=other")
			read, key = "", ""
			e.ServeHTTP(httptest.NewRecorder(), r)
			if read != key {
				t.Errorf("%s of %q: the key is %q, the application reads %q", name, value, key, read)
			}
		}
	}
}
