package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// A slot moves to another node while it is used, and stops half-way: the keys
// of one Take are on either side, and no node can decide it. As soon as they are
// together again, wherever that is, clients find them. A Take that has charges
// in another slot as well gets those back.
func TestSlotMoves(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	rdb := cluster.Client(func(o *redis.ClusterOptions) {
		o.ContextTimeoutEnabled = true
		o.ClusterStateReloadInterval = time.Hour // it learns from errors alone
	})
	s := redisstore.New(rdb, redisstore.WithTimeout(callTimeout))
	stays := "s"
	for cluster.NodeOf("{"+stays+"}") == cluster.NodeOf("{two}") {
		stays += "s"
	}
	loads := map[string]*traffic{"one": drive(t, s, "one"), "two": drive(t, s, "two", stays)}
	for key, f := range loads {
		f.passes(t)
		move := cluster.BeginMigration("{" + key + "}")
		f.passes(t)
		move.MoveKeys("stint:{" + key + "}:a")
		f.fails(t, redisstore.ErrUnavailable, "TRYAGAIN")
		move.MoveKeys()
		f.passes(t)
		if move.From.Info("errorstats", "errorstat_ASK") == "" {
			t.Error("no client was told to ASK")
		}
		move.Finish()
		f.passes(t)
		if move.From.Info("errorstats", "errorstat_MOVED") == "" {
			t.Error("no client was told that the slot has MOVED")
		}
	}
	for _, f := range loads {
		f.end(t, allKept, redisstore.ErrUnavailable)
	}
}
