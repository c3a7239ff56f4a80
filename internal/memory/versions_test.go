package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/memory"
	"github.com/stint-go/stint/internal/test/versionstest"
)

func TestVersions(t *testing.T) {
	versionstest.Run(t, 12, func(t *testing.T, trace func(*testing.T, versionstest.Bench)) {
		synctest.Test(t, func(t *testing.T) {
			s, start := memory.New(memory.Config{}), time.Now()
			now := func() int64 { return time.Since(start).Microseconds() }
			trace(t, versionstest.Bench{Store: s, Now: now, Sleep: time.Sleep})
		})
	})
}
