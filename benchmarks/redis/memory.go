package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// keyMemory is the memory of a key in the server.
type keyMemory struct {
	usage float64 // what MEMORY USAGE says of it, the median of some keys
	used  float64 // its part of what many of them add to used_memory
}

func measureMemory(s *server, subjects []subject, n int) (map[string]keyMemory, error) {
	all := map[string]keyMemory{}
	length := 0
	for i := range subjects {
		what := &subjects[i]
		if what.store == nil {
			continue
		}
		b, l, err := keyBytes(s, what, n)
		if err != nil {
			return nil, fmt.Errorf("%s, bytes: %w", what.name, err)
		}
		if length == 0 {
			length = l
		}
		if l != length {
			return nil, fmt.Errorf("%s: keys of %d bytes beside keys of %d", what.name, l, length)
		}
		all[what.name] = b
	}
	return all, nil
}

// keyBytes makes n keys, and reports their length too.
func keyBytes(s *server, what *subject, n int) (b keyMemory, length int, err error) {
	ctx := context.Background()
	keys := names(n)
	fill := func() error {
		if err := s.admin.FlushAll(ctx).Err(); err != nil {
			return err
		}
		const callers = 16
		errs := make([]error, callers)
		var all sync.WaitGroup
		for c := range callers {
			all.Go(func() {
				for i := c; i < n && errs[c] == nil; i += callers {
					errs[c] = what.store(ctx, keys[i]+what.pad)
				}
			})
		}
		all.Wait()
		return errors.Join(errs...)
	}
	// Once to have the connections and their buffers, which are not the keys'.
	if err := fill(); err != nil {
		return b, 0, err
	}
	if err := s.admin.FlushAll(ctx).Err(); err != nil {
		return b, 0, err
	}
	empty, err := s.settled()
	if err != nil {
		return b, 0, err
	}
	if err := fill(); err != nil {
		return b, 0, err
	}
	full, err := s.settled()
	if err != nil {
		return b, 0, err
	}
	if size := s.admin.DBSize(ctx).Val(); size != int64(n) {
		return b, 0, fmt.Errorf("%d keys in the server, not %d", size, n)
	}
	b.used = (full - empty) / float64(n)

	var usage []float64
	for range 50 {
		stored, err := s.admin.RandomKey(ctx).Result()
		if err != nil {
			return b, 0, err
		}
		length = len(stored)
		usage = append(usage, float64(s.admin.MemoryUsage(ctx, stored).Val()))
	}
	slices.Sort(usage)
	b.usage = usage[len(usage)/2]
	return b, length, nil
}

// settled is used_memory once it stays within a kilobyte for a while: the server
// goes on growing its table of keys after the last of them has come.
func (s *server) settled() (float64, error) {
	last := -1.0
	for same, end := 0, time.Now().Add(5*time.Second); ; time.Sleep(50 * time.Millisecond) {
		now, err := s.info()
		if err != nil {
			return 0, err
		}
		if d := now.memory - last; d < -1024 || d > 1024 {
			same = 0
		} else {
			same++
		}
		if last = now.memory; same == 5 {
			return last, nil
		}
		if time.Now().After(end) {
			return 0, errors.New("used_memory doesn't come to rest")
		}
	}
}
