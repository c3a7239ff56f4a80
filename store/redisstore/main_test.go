package redisstore

import (
	"testing"

	"github.com/stint-go/stint/internal/test/redistest"
)

// Tests that take long, and in which nothing goes by the time of this machine, are parallel: so they
// come last, and keep all cores busy. Those that look at timeouts and deadlines have run by then.
func TestMain(m *testing.M) { redistest.Main(m) }
