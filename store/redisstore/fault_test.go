package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/test/redistest"
	"github.com/stint-go/stint/store/redisstore"
)

// What goes wrong in a server that stays: the class of the errors, how long
// callers are held, nothing charged twice, and service resumes by itself.
func TestFaultsOfServer(t *testing.T) {
	redistest.Suite(t, "faults")
	do := func(commands ...string) func(*redistest.Server) {
		return func(s *redistest.Server) {
			for _, command := range commands {
				var args []any
				for word := range strings.FieldsSeq(command) {
					args = append(args, strings.Trim(word, `"`))
				}
				s.Do(args...)
			}
		}
	}
	// Those who are thrown out in the middle of a call have no answer.
	cutOff := []error{redisstore.ErrIndeterminate}
	for _, tt := range []struct {
		name                 string
		before, wrong, after func(s *redistest.Server)
		class                error // nil: no caller notices
		words                string
		besides              []error // classes seen on the way there and back
		user                 string
	}{
		{
			name:  "out of memory",
			wrong: do("CONFIG SET maxmemory 1"), after: do("CONFIG SET maxmemory 0"),
			class: redisstore.ErrServer, words: "OOM",
		},
		{
			name:  "read only",
			wrong: do("REPLICAOF 127.0.0.1 1"), after: do("REPLICAOF NO ONE"),
			class: redisstore.ErrUnavailable, words: "READONLY",
		},
		{
			name:  "rights taken away",
			wrong: do("ACL SETUSER default -evalsha"), after: do("ACL SETUSER default +evalsha"),
			class: redisstore.ErrConfiguration, words: "NOPERM",
		},
		{
			name: "password changed", user: "u",
			before: do("ACL SETUSER u on >right ~* +@all"),
			wrong:  do("ACL SETUSER u resetpass >other", "CLIENT KILL USER u"), after: do("ACL SETUSER u resetpass >right"),
			class: redisstore.ErrConfiguration, words: "WRONGPASS", besides: cutOff,
		},
		{
			name:  "password asked for",
			wrong: do("CONFIG SET requirepass right", "CLIENT KILL TYPE normal"), after: do(`CONFIG SET requirepass ""`),
			// NOAUTH to a short command. One of more than ten words it doesn't read.
			class: redisstore.ErrConfiguration, words: "unauthenticated", besides: cutOff,
		},
		{
			name:  "too many clients",
			wrong: do("CONFIG SET maxclients 1", "CLIENT KILL TYPE normal"), after: do("CONFIG SET maxclients 10000"),
			// The server says why and hangs up; a client that is still writing never reads it.
			class: redisstore.ErrUnavailable, besides: cutOff,
		},
		{
			name:  "paused",
			wrong: (*redistest.Server).Pause, after: (*redistest.Server).Resume,
			class: redisstore.ErrUnavailable, words: "no connection within the timeout", besides: cutOff,
		},
		{
			name:  "scripts flushed",
			wrong: do("SCRIPT FLUSH"), after: do("SCRIPT FLUSH"),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			if tt.before != nil {
				tt.before(server)
			}
			rdb := server.Client(func(o *redis.Options) {
				o.ContextTimeoutEnabled = true
				if tt.user != "" {
					o.Username, o.Password = tt.user, "right"
				}
			})
			timeout := patient // of a server that answers, none is needed
			if tt.name == "paused" {
				timeout = redisstore.WithTimeout(callTimeout)
			}
			f := drive(t, redisstore.New(rdb, timeout))
			f.passes(t)
			tt.wrong(server)
			allowed := tt.besides
			if tt.class != nil {
				f.fails(t, tt.words, tt.class)
				allowed = append([]error{tt.class}, tt.besides...)
			} else {
				f.passes(t)
			}
			tt.after(server)
			f.passes(t)
			f.end(t, allKept, allowed...)
		})
	}
}

// A script that doesn't end blocks everybody, until it is killed.
func TestBusyServer(t *testing.T) {
	server := redistest.Start(t, "--lua-time-limit", "20")
	rdb := server.Client(func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	other := server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute })
	f := drive(t, redisstore.New(rdb, patient))
	f.passes(t)
	done := make(chan error, 1)
	go func() { done <- other.Eval(context.Background(), "while true do end", nil).Err() }()
	f.fails(t, "", redisstore.ErrServer)
	server.Do("SCRIPT", "KILL")
	<-done
	f.passes(t)
	f.end(t, allKept, redisstore.ErrServer)
}
