package redistest

import (
	"os"
	"strings"
	"testing"
)

// envSuite names the longer suite to run.
const envSuite = "STINT_SUITE"

// Suite skips the test unless STINT_SUITE names the suite that it belongs to, as "make
// test-faults" does for "faults". The names of a suite's tests share a prefix
// (TestFaults…), so that the target runs them and nothing else.
func Suite(t testing.TB, name string) {
	t.Helper()
	prefix := "Test" + strings.ToUpper(name[:1]) + name[1:]
	if !strings.HasPrefix(t.Name(), prefix) {
		t.Fatalf("a test of the suite %q is named %s…, or make test-%s does not run it", name, prefix, name)
	}
	if os.Getenv(envSuite) != name {
		t.Skipf("make test-%s runs it", name)
	}
}
