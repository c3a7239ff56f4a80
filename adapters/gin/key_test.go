package stintgin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
)

// user is the key that authenticate has set.
var user = Key(func(c *gin.Context) (string, error) { return c.GetString("user"), nil })

func authenticate(c *gin.Context) { c.Set("user", c.GetHeader("X-User")) }

// gin reuses its contexts. A request or a context that is kept after its request must not lead
// to the gin context of a later request.
func TestKeyLetsGo(t *testing.T) {
	var kept []context.Context
	keep := func(r *http.Request) { kept = append(kept, r.Context()) }
	l := stint.Must(stint.New(stint.Rate(1, time.Hour),
		WithDenyHandler(func(c *gin.Context) { keep(c.Request) }),
		stint.WithObserver(func(e stint.Event) {
			if e.Request != nil {
				keep(e.Request)
			}
		}),
		stint.WithKey(stint.Join(user, stint.KeyFunc(func(r *http.Request) (string, error) {
			keep(r)
			return "", readable(r, "ada") // until the request ends it is there
		}))), stint.WithEmptyKey(stint.SkipEmptyKey)))
	limited := stint.Must(l.With(stint.Rate(1, time.Hour, stint.WithName("user"), stint.WithKey(user))))
	e := gin.New()
	e.Use(authenticate, Middleware(limited))
	e.GET("/", func(c *gin.Context) {
		keep(c.Request)
		for _, ctx := range kept {
			if err := readable(c.Request.WithContext(ctx), "ada"); err != nil {
				t.Errorf("while the handler runs: %v", err)
			}
		}
		if stint.FromContext(c.Request.Context()) == nil {
			t.Error("the permit is gone with it")
		}
	})
	kept = nil // New has called the key functions
	for _, want := range []int{200, 429} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != want {
			t.Fatalf("got %d %s, want %d", w.Code, w.Body, want)
		}
	}
	if len(kept) != 6 {
		t.Fatalf("%d contexts were kept", len(kept))
	}
	for i, ctx := range kept {
		if err := readable(httptest.NewRequest("GET", "/", nil).WithContext(ctx), "ada"); err == nil {
			t.Errorf("context %d still leads to gin's", i)
		}
	}
}

// readable is nil if the user can be told by the request.
func readable(r *http.Request, want string) error {
	if got, err := user.Of(r); got != want || err != nil {
		return errors.New("got " + got)
	}
	return nil
}

// Key functions and the handler see the same request: what a key has parsed of the
// body, through gin's context or the request, is parsed for all.
func TestKeyReadsTheBody(t *testing.T) {
	form := func(c *gin.Context) (string, error) { return c.PostForm("name"), nil }
	ofRequest := func(r *http.Request) (string, error) { return r.FormValue("name"), nil }
	for name, keys := range map[string][]stint.Key{
		"gin's":                {Key(form)},
		"gin's, then another":  {Key(form), stint.KeyFunc(ofRequest)},
		"another, then gin's":  {stint.KeyFunc(ofRequest), Key(form)},
		"joined":               {stint.Join(stint.KeyFunc(ofRequest), Key(form))},
		"of the request alone": {stint.KeyFunc(ofRequest)},
	} {
		for _, permit := range []stint.Option{stint.WithoutPermit(), stint.WithHeaders(stint.NoHeaders)} {
			opts := []stint.Option{permit}
			for i, k := range keys {
				opts = append(opts, stint.Rate(9, time.Hour, stint.WithName(string(rune('a'+i))), stint.WithKey(k)))
			}
			e := gin.New()
			e.Use(New(opts...))
			e.POST("/", func(c *gin.Context) {
				var f struct {
					Name string `form:"name"`
				}
				if err := c.ShouldBind(&f); err != nil || f.Name != "ada" || c.PostForm("name") != "ada" || c.Request.FormValue("name") != "ada" {
					t.Errorf("%s: the handler reads %q, %q, %q: %v", name, f.Name, c.PostForm("name"), c.Request.FormValue("name"), err)
				}
			})
			r := httptest.NewRequest("POST", "/", strings.NewReader("name=ada"))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			w := httptest.NewRecorder()
			if e.ServeHTTP(w, r); w.Code != 200 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
	}
}

// The server removes the files of the request that it knows, whatever replaced it.
func TestKeyLeavesFilesToTheServer(t *testing.T) {
	for name, after := range map[string]func() (string, error){
		"admitted": func() (string, error) { return "k", nil },
		"denied":   func() (string, error) { return "", errors.New("no") },
		"a panic":  func() (string, error) { panic("no") },
	} {
		e := gin.New()
		e.MaxMultipartMemory = 1
		e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
		e.Use(New(stint.Rate(9, time.Hour), stint.WithKey(Key(func(c *gin.Context) (string, error) {
			if _, err := c.MultipartForm(); err != nil {
				t.Error(err)
			}
			return after()
		}))))
		e.POST("/", func(c *gin.Context) {})

		var body bytes.Buffer
		m := multipart.NewWriter(&body)
		part, _ := m.CreateFormFile("f", "f")
		_, _ = part.Write(make([]byte, 1<<10)) // more than MaxMultipartMemory
		_ = m.Close()
		r := httptest.NewRequest("POST", "/", &body)
		r.Header.Set("Content-Type", m.FormDataContentType())
		e.ServeHTTP(httptest.NewRecorder(), r)
		if r.MultipartForm == nil {
			t.Errorf("%s: the server doesn't know of the files", name)
			continue
		}
		f, err := r.MultipartForm.File["f"][0].Open()
		if err != nil {
			t.Fatal(err)
		}
		if _, onDisk := f.(*os.File); !onDisk {
			t.Errorf("%s: the file is in memory: this test is about those on disk", name)
		}
		_, _ = f.Close(), r.MultipartForm.RemoveAll()
	}
}

// A limiter inside another asks for the same user, and a request that is handled
// again is not charged again.
func TestKeyOfNestedLimiters(t *testing.T) {
	outer := stint.Must(stint.New(stint.Rate(9, time.Hour, stint.WithName("outer")), stint.WithKey(user)))
	inner := stint.Must(outer.With(stint.Rate(1, time.Hour, stint.WithName("inner"))))
	e := gin.New()
	e.Use(authenticate, Middleware(outer))
	e.GET("/", Middleware(inner), func(c *gin.Context) {
		c.Request.URL.Path = "/again"
		e.HandleContext(c)
	})
	e.GET("/again", func(c *gin.Context) {})
	for _, want := range []int{200, 429} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-User", "ada")
		w := httptest.NewRecorder()
		if e.ServeHTTP(w, r); w.Code != want {
			t.Errorf("got %d %v", w.Code, w.Header())
		}
	}
	if d, err := outer.Peek(t.Context(), "ada"); err != nil || d.Remaining != 7 {
		t.Errorf("left %d, %v, want 7", d.Remaining, err)
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
	want := "stint: limit rate: stintgin.Key: the request has not come through stintgin: mount the limiter with stintgin"
	if w.Code != 500 || failed == nil || !strings.HasPrefix(failed.Error(), want) {
		t.Errorf("got %d, %v", w.Code, failed)
	}
}

// Limits that a limiter doesn't know beforehand have such keys too, and so have functions of
// gin's context that read other keys.
func TestKeyOfALimitFunc(t *testing.T) {
	calls := 0
	or := Key(func(c *gin.Context) (string, error) {
		calls++
		if name, err := user.Of(c.Request); err != nil || name != "" {
			return name, err
		}
		return stint.RemoteIP().Of(c.Request)
	})
	unseen := stint.Rate(2, time.Hour, stint.WithName("unseen"), stint.WithKey(or))
	e := gin.New()
	e.Use(authenticate, New(stint.WithKey(stint.Global()), stint.WithLimitFunc(func(*http.Request) ([]stint.Limit, error) {
		return []stint.Limit{unseen}, nil
	})))
	e.GET("/", func(*gin.Context) {})
	for _, name := range []string{"ada", ""} {
		for i, want := range []int{200, 200, 429} {
			calls = 0
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
			r.Header.Set("X-User", name)
			if e.ServeHTTP(w, r); w.Code != want || calls != 1 {
				t.Errorf("%q, request %d: %d after %d calls, want %d", name, i+1, w.Code, calls, want)
			}
		}
	}
}

// A key reads the same value as the application, however a client spells the request.
func TestKeysReadAsGin(t *testing.T) {
	for name, tt := range map[string]struct {
		key  stint.Key
		read func(*gin.Context) string
	}{
		"Cookie": {Cookie("session"), func(c *gin.Context) string { v, _ := c.Cookie("session"); return v }},
		"Header": {stint.Header("X-API-Key"), func(c *gin.Context) string { return c.GetHeader("x-api-key") }},
		"Query": {stint.KeyFunc(func(r *http.Request) (string, error) { return r.URL.Query().Get("user"), nil }),
			func(c *gin.Context) string { return c.Query("user") }},
		"Param": {Key(func(c *gin.Context) (string, error) { return c.Param("id"), nil }), func(c *gin.Context) string { return c.Param("id") }},
	} {
		var read, key string
		e := gin.New()
		e.Use(New(stint.Rate(1000, time.Hour), stint.WithEmptyKey(stint.SkipEmptyKey), stint.WithKey(stint.KeyFunc(func(r *http.Request) (string, error) {
			k, err := tt.key.Of(r)
			key = k
			return k, err
		}))))
		e.GET("/users/:id", func(c *gin.Context) { read = tt.read(c) })
		for _, value := range []string{"a", "%61", "%41", "a%20b", "a+b", "%zz", "%", "%2F", "%252F", `"a"`, `"%61"`, "a;b", "a&b", "", "%00"} {
			r := httptest.NewRequest("GET", "/", nil)
			u := "/users/" + strings.ReplaceAll(url.PathEscape(value), "%25", "%") + "?user=" + value + "&user=other"
			if parsed, err := url.ParseRequestURI(u); err == nil {
				r.URL, r.RequestURI = parsed, u
			} else {
				r.URL = &url.URL{Path: "/users/x", RawQuery: "user=" + value}
			}
			r.Header["X-Api-Key"] = []string{value, "other"}
			r.Header.Set("Cookie", "x=y; session="+value+"; session=other")
			read, key = "", ""
			e.ServeHTTP(httptest.NewRecorder(), r)
			if read != key {
				t.Errorf("%s of %q: the key is %q, the application reads %q", name, value, key, read)
			}
		}
	}
	if _, err := stint.New(stint.Rate(1, time.Hour), stint.WithKey(Cookie("a b"))); err == nil || !strings.Contains(err.Error(), "this isn't a valid name of a cookie") {
		t.Errorf("a name that no cookie has: %v", err)
	}
}

// One session has one bucket, however its cookie is written.
func TestCookieHasOneBucket(t *testing.T) {
	e := gin.New()
	e.Use(New(stint.Rate(3, time.Hour), stint.WithKey(Cookie("session"))))
	e.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	passed := 0
	for _, value := range []string{"ab", "%61b", "a%62", "%61%62", "ab", "%61b"} {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Header.Set("Cookie", "session="+value)
		if e.ServeHTTP(w, r); w.Code == http.StatusOK {
			passed++
		}
	}
	if passed != 3 {
		t.Errorf("%d spellings of one session pass a limit of 3", passed)
	}
}
