package project

import (
	"regexp"
	"strings"
	"testing"
)

// The versions in docs/releases.md are those of go.mod, of CI and of docs/redis.md.
func TestSupportedVersions(t *testing.T) {
	required := func(file, name string) string {
		m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(name) + ` (v\S+)`).FindStringSubmatch(read(t, file))
		if m == nil {
			t.Fatalf("%s doesn't require %s", file, name)
		}
		return m[1] + " and newer " + m[1][:strings.Index(m[1], ".")]
	}
	servers := regexp.MustCompile(`Redis ([0-9.]+) or newer, Valkey ([0-9.]+) or newer`).FindStringSubmatch(read(t, "docs/redis.md"))
	if servers == nil {
		t.Fatal("docs/redis.md doesn't say which servers")
	}
	releases := regexp.MustCompile(`go: \["([0-9.]+)", "([0-9.]+)"\]`).FindStringSubmatch(read(t, ".github/workflows/ci.yml"))
	if releases == nil || !strings.Contains(read(t, "go.mod"), "\ngo "+releases[1]+".") {
		t.Fatalf("CI runs on Go %v, and go.mod has another", releases)
	}
	want := map[string]string{
		"Go":            releases[1] + ", " + releases[2],
		"Redis":         servers[1] + " and newer",
		"Valkey":        servers[2] + " and newer",
		"go-redis":      required("go.mod", "github.com/redis/go-redis/v9"),
		"gin":           required("go.mod", "github.com/gin-gonic/gin"),
		"echo v4":       required("go.mod", "github.com/labstack/echo/v4"),
		"echo v5":       required("adapters/echov5/go.mod", "github.com/labstack/echo/v5"),
		"gRPC":          required("adapters/grpc/go.mod", "google.golang.org/grpc"),
		"OpenTelemetry": required("observe/otel/go.mod", "go.opentelemetry.io/otel"),
	}
	for _, row := range table(t, "docs/releases.md", "| what | versions | how long |") {
		if versions := want[row[0]]; versions != "" && versions != row[1] {
			t.Errorf("%s: %s, want %s", row[0], row[1], versions)
		}
		delete(want, row[0])
	}
	for name := range want {
		t.Errorf("no row for %s", name)
	}
}
