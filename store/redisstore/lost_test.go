package redisstore

import (
	"context"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/store/redisstore/internal/wire"
)

// A panic of the function that is told of a lost lease ends neither the process nor
// the renewal: the others are told of as well, and it is in the log.
func TestLostPanics(t *testing.T) {
	logged := logs(t)
	rdb := redistest.Shared(t).Client()
	s := manyStore(t, rdb).WithLost(func(key string, _ *store.Limit) { panic("oops " + key) })
	l := denyLimit(t, store.Spec{Name: "n", Units: 1, Algorithm: store.Concurrency})
	for _, key := range []string{"a", "b"} {
		var r [1]store.Result
		if err := s.Take(context.Background(), []store.Charge{{Key: key, Limit: l, Cost: 1}}, r[:]); err != nil || !r[0].OK {
			t.Fatal(r[0], err)
		}
		if err := rdb.Del(context.Background(), wire.StorageKey(s.prefix, key, l)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if !s.renewals.renew(0) {
		t.Error("not all was answered")
	}
	if text := logged.String(); strings.Count(text, "level=ERROR") != 2 || !strings.Contains(text, `"oops a"`) || !strings.Contains(text, `"oops b"`) {
		t.Errorf("in the log: %s", text)
	}
	for _, key := range []string{"a", "b"} { // they have been entered again
		if n, err := rdb.ZCard(context.Background(), wire.StorageKey(s.prefix, key, l)).Result(); err != nil || n != 2 {
			t.Errorf("%s: %d members, %v", key, n, err)
		}
	}
}
