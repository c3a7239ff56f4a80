package stintecho_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
	stintecho "github.com/stint-go/stint/adapters/echov5"
)

// Each user has a limit, as docs/keys.md has it.
func TestKeyOfTheDocument(t *testing.T) {
	e := echo.New()
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.Request().Header.Get("X-Test-User"))
			return next(c)
		}
	}

	e.Use(authenticate) // c.Set("user", …)
	e.Use(stintecho.New(stint.Rate(10, time.Second),
		stint.WithKey(stintecho.Key(func(c *echo.Context) (string, error) {
			user, _ := c.Get("user").(string)
			return user, nil
		}))))

	e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
	get := func(user string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Test-User", user)
		e.ServeHTTP(w, r)
		return w.Code
	}
	synctest.Test(t, func(t *testing.T) {
		for i := range 11 {
			want := http.StatusNoContent
			if i == 10 {
				want = http.StatusTooManyRequests
			}
			if got := get("ada"); got != want {
				t.Errorf("request %d of ada: %d, want %d", i+1, got, want)
			}
		}
		if got := get("bob"); got != http.StatusNoContent {
			t.Errorf("bob: %d", got)
		}
		if got := get(""); got != http.StatusForbidden {
			t.Errorf("without a user: %d", got)
		}
	})

	document, err := os.ReadFile("../../docs/keys.md")
	if err != nil {
		t.Skip("the module has no documents:", err)
	}
	code, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(document), "```go adapters/echov5\n")
	block, _, closed := strings.Cut(block, "```\n")
	indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n\t")
	if !found || !closed || !strings.Contains(string(code), indented) {
		t.Errorf("docs/keys.md has code that isn't here:\n%s", block)
	}
}
