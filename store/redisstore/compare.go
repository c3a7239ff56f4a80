package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// Processes compare what their limits mean by a name: its numbers, in words. One set in the
// server has the meanings, and when some process last repeated each. It doesn't say which
// process, so its size is that of the configurations, however large the fleet is.
//
// A process repeats a meaning, and compares it, once it has had it for settled: one that is
// deployed or updated says nothing of its new numbers until then, by when the last process with
// the old ones has stopped repeating those. So a meaning that another process still repeats
// after that is compared is one that it has had for as long: both were there all the time.

const (
	// settled is how long a limit must have had its numbers.
	settled = 15 * time.Minute
	// meaningsStay is how long a meaning stays in the server that nobody repeats. A process
	// that stood still for longer than that compares with nothing older.
	meaningsStay = 3 * watchEvery
	// mostCompared is how many meanings a process compares, the first ones in alphabetical
	// order, so that all processes compare the same. mostMeanings is how many the server keeps.
	// A comparison takes it about a millisecond then, and with twenty limits in all a twentieth.
	mostCompared = 100
	mostMeanings = 500
)

// meaningsTag is the hash tag of the set. No identity is escaped to it.
const meaningsTag = "%limits"

// comparison is what a store knows of meanings. Only the goroutine that looks uses it.
type comparison struct {
	own  map[string]*meaning    // as the set has them
	told map[*store.Limit]error // conflicts
}

// meaning is a limit's name with its numbers, which limiters of this process have.
type meaning struct {
	limits []*store.Limit
	since  time.Time // when it was found first
	// compared are the server's instants of the last two looks that have repeated it, or 0. What
	// others have repeated since the first of them counts: two looks apart, since theirs may be
	// a little more apart than these.
	compared [2]int64
}

// compareLimits repeats and compares what is settled, and tells what is new. It reports whether
// to look again.
func (s *Store) compareLimits() (again bool) {
	c := &s.comparison
	c.find(s.watch.observers.Limits(), time.Now())
	own := c.settled(time.Now())
	found := map[*store.Limit]error{}
	if len(own) > 0 {
		now, others, err := s.repeatMeanings(own)
		if reply := redis.Error(nil); errors.Is(err, redis.ErrClosed) || errors.As(err, &reply) && classOfReply(reply.Error()) == ErrConfiguration {
			return false
		}
		if err != nil {
			return true // a server that doesn't answer takes nothing back
		}
		for _, text := range own {
			m := c.own[text]
			if err := m.conflict(text, others); err != nil {
				for _, l := range m.limits {
					found[l] = err
				}
			}
			if m.compared[0] = m.compared[1]; m.compared[0] == 0 {
				m.compared[0] = now
			}
			m.compared[1] = now
		}
	}
	was := c.told
	c.told = found
	for l := range was {
		if found[l] == nil {
			s.watch.observers.Tell(store.Notice{Kind: store.Conflict, Limit: l})
		}
	}
	for l, err := range found {
		s.watch.observers.Tell(store.Notice{Kind: store.Conflict, Limit: l, Err: err})
	}
	return true
}

// find replaces the limits of all meanings by those that there are now.
func (c *comparison) find(limits map[*store.Limit]string, now time.Time) {
	was := c.own
	c.own = map[string]*meaning{}
	for l, numbers := range limits {
		text := l.Name() + " " + numbers // no name has a space
		m := c.own[text]
		if m == nil {
			m = &meaning{since: now}
			if before := was[text]; before != nil {
				m.since, m.compared = before.since, before.compared
			}
			c.own[text] = m
		}
		m.limits = append(m.limits, l)
	}
}

// settled returns the meanings to compare.
func (c *comparison) settled(now time.Time) []string {
	var all []string
	for _, text := range slices.Sorted(maps.Keys(c.own)) {
		if now.Sub(c.own[text].since) >= settled && len(all) < mostCompared {
			all = append(all, text)
		}
	}
	return all
}

// repeatMeanings repeats meanings in the server. It returns the server's instant, and when each
// meaning of these names was last repeated.
func (s *Store) repeatMeanings(own []string) (now int64, others map[string]int64, err error) {
	key := s.prefix + "{" + meaningsTag + "}"
	keys := []string{key}
	args := append(make([]any, s.head(keys)), s.timeArgs(nil).clock, meaningsStay.Microseconds(), mostMeanings)
	for _, text := range own {
		args = append(args, text)
	}
	calls := []call{s.call(scripts.Compare(), s.siteOf(key), keys, args)}
	ctx, end := context.WithTimeout(context.Background(), watchWithin)
	defer end()
	if err := s.execAll(ctx, calls); err != nil {
		return 0, nil, err
	}
	told, err := calls[0].cmd.StringSlice()
	if err != nil || len(told)%2 == 0 {
		return 0, nil, cmp.Or(err, errMeanings)
	}
	others = map[string]int64{}
	for i := 1; i < len(told); i += 2 {
		others[told[i]], err = strconv.ParseInt(told[i+1], 10, 64)
		if err != nil {
			return 0, nil, err
		}
	}
	now, err = strconv.ParseInt(told[0], 10, 64)
	return now, others, err
}

var errMeanings = errors.New("redisstore: an answer about meanings makes no sense")

// conflict returns what to do if others mean something else by the name, or nil.
func (m *meaning) conflict(text string, others map[string]int64) error {
	name, numbers, _ := strings.Cut(text, " ")
	if m.compared[0] == 0 {
		return nil // this look is the first to compare it
	}
	for _, other := range slices.Sorted(maps.Keys(others)) {
		n, theirs, _ := strings.Cut(other, " ")
		if n == name && theirs != numbers && others[other] > m.compared[0] {
			return fmt.Errorf("limit %q is %q here and %q in another process on its Redis, so what a caller gets depends on which one decides: "+
				"deploy one configuration, or write another stint.WithName in one of them", name, numbers, theirs)
		}
	}
	return nil
}
