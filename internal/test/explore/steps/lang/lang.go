// Package lang is Go's statements about goroutines and channels, for code that is explored:
// see package steps. The channels are Go's own. One without a buffer can be closed, but
// nothing passes through it.
package lang

import (
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
)

// Go is go f().
func Go(f func()) { steps.Spawn(f) }

// Go1 is go f(a).
func Go1[A any](f func(A), a A) { steps.Spawn(func() { f(a) }) }

// Go2 is go f(a, b).
func Go2[A, B any](f func(A, B), a A, b B) { steps.Spawn(func() { f(a, b) }) }

// object is the address of a channel.
func object[C any](c *C) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(c)) }

// Incoming is a select's case that receives.
type Incoming[T any] struct {
	from <-chan T
	v    T
	ok   bool
}

// In is case <-c.
func In[T any](c <-chan T) *Incoming[T] { return &Incoming[T]{from: c} }

// Got returns the value received.
func (i *Incoming[T]) Got() T { return i.v }

// Got2 returns the value received, and whether there was one.
func (i *Incoming[T]) Got2() (T, bool) { return i.v, i.ok }

func (i *Incoming[T]) asCase() steps.Case {
	at := object(&i.from)
	return steps.Case{
		Object: at,
		Ready: func() bool {
			if len(i.from) > 0 {
				return true
			}
			select {
			case <-i.from: // it is empty, so it is closed
				return true
			default:
				return false
			}
		},
		Pass: func() {
			if i.v, i.ok = <-i.from; i.ok {
				steps.Note("receives from channel %s", steps.Name(at))
			} else {
				steps.Note("finds channel %s closed", steps.Name(at))
			}
		},
	}
}

// Outgoing is a select's case that sends.
type Outgoing[T any] struct {
	to chan<- T
	v  T
}

// Out is case c <- v.
func Out[T any](c chan<- T, v T) *Outgoing[T] { return &Outgoing[T]{c, v} }

func (o *Outgoing[T]) asCase() steps.Case {
	at := object(&o.to)
	return steps.Case{
		Object: at,
		Ready:  func() bool { return len(o.to) < cap(o.to) },
		Pass: func() {
			o.to <- o.v
			steps.Note("sends to channel %s", steps.Name(at))
		},
	}
}

// Case is a case of a select: one that In or Out returns.
type Case interface{ asCase() steps.Case }

// Select returns the index of the case that is done, or -1 for the default.
func Select(orElse bool, cases ...Case) int {
	all := make([]steps.Case, len(cases))
	for i, c := range cases {
		all[i] = c.asCase()
	}
	return steps.Select(orElse, all...)
}

// Receive is <-c.
func Receive[T any](c <-chan T) T {
	v, _ := Receive2(c)
	return v
}

// Receive2 is <-c where it also matters whether c is closed.
func Receive2[T any](c <-chan T) (T, bool) {
	in := In(c)
	Select(false, in)
	return in.Got2()
}

// Send is c <- v.
func Send[T any](c chan<- T, v T) { Select(false, Out(c, v)) }

// Close is close(c).
func Close[T any](c chan<- T) {
	at := object(&c)
	steps.At(steps.Store, at)
	close(c)
	steps.Note("closes channel %s", steps.Name(at))
}
