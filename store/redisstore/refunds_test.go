package redisstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/store/redisstore/internal/batch"
)

// What isn't given back is sent again, however long a call may take.
func TestGivenBackAgain(t *testing.T) {
	for _, timeout := range []time.Duration{time.Millisecond, defaultTimeout, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := New(nil, WithTimeout(timeout))
			sent := 0
			s.settles.Send = func(_ context.Context, calls []*batch.Call[settleRequest]) {
				sent++
				calls[0].Failed = ErrUnavailable
			}
			one := batch.NewCall[settleRequest]()
			one.Body.keys = []string{"k"}
			<-s.refunds.start(one)
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			if sent < 2 {
				t.Errorf("timeout %v: sent %d times", timeout, sent)
			}
		})
	}
}
