// Package atomic is package sync/atomic for code that is explored: see package steps.
package atomic

import (
	"unsafe"

	"github.com/stint-go/stint/internal/test/explore/steps"
)

type number interface {
	~int32 | ~int64 | ~uint32 | ~uint64
}

func note[T any](p *T, what string, values ...T) {
	if !steps.Tracing() {
		return
	}
	said := []any{steps.Name(unsafe.Pointer(p))}
	for i := range values {
		if to, is := any(&values[i]).(interface{ object() unsafe.Pointer }); is {
			said = append(said, "*"+steps.Name(to.object()))
		} else {
			said = append(said, values[i])
		}
	}
	steps.Note("%s "+what, said...)
}

// to is a Pointer's value, by which a trace names its target.
type to[T any] struct{ p *T }

func (t *to[T]) object() unsafe.Pointer { return unsafe.Pointer(t.p) }

func load[T any](p *T) T {
	steps.At(steps.Load, unsafe.Pointer(p))
	note(p, "loads %v", *p)
	return *p
}

func store[T any](p *T, v T) {
	steps.At(steps.Store, unsafe.Pointer(p))
	*p = v
	note(p, "stores %v", v)
}

func swap[T any](p *T, v T) (was T) {
	steps.At(steps.Store, unsafe.Pointer(p))
	was, *p = *p, v
	note(p, "swaps %v for %v", was, v)
	return was
}

func compareAndSwap[T comparable](p *T, was, v T) bool {
	steps.At(steps.Store, unsafe.Pointer(p))
	if *p != was {
		steps.Unchanged()
		note(p, "is %v, not swapped for %v", *p, v)
		return false
	}
	*p = v
	note(p, "swaps %v for %v", was, v)
	return true
}

func add[T number](p *T, d T) T {
	steps.At(steps.Store, unsafe.Pointer(p))
	*p += d
	note(p, "adds %v: %v", d, *p)
	return *p
}

// The functions of sync/atomic that are used.

func LoadInt64(p *int64) int64                        { return load(p) }
func StoreInt64(p *int64, v int64)                    { store(p, v) }
func SwapInt64(p *int64, v int64) int64               { return swap(p, v) }
func AddInt64(p *int64, d int64) int64                { return add(p, d) }
func CompareAndSwapInt64(p *int64, was, v int64) bool { return compareAndSwap(p, was, v) }

func LoadUint64(p *uint64) uint64                        { return load(p) }
func StoreUint64(p *uint64, v uint64)                    { store(p, v) }
func SwapUint64(p *uint64, v uint64) uint64              { return swap(p, v) }
func AddUint64(p *uint64, d uint64) uint64               { return add(p, d) }
func CompareAndSwapUint64(p *uint64, was, v uint64) bool { return compareAndSwap(p, was, v) }

type integer[T number] struct{ v T }

func (x *integer[T]) Load() T                      { return load(&x.v) }
func (x *integer[T]) Store(v T)                    { store(&x.v, v) }
func (x *integer[T]) Swap(v T) T                   { return swap(&x.v, v) }
func (x *integer[T]) Add(d T) T                    { return add(&x.v, d) }
func (x *integer[T]) CompareAndSwap(was, v T) bool { return compareAndSwap(&x.v, was, v) }

// The integers of sync/atomic.
type (
	Int32  struct{ integer[int32] }
	Int64  struct{ integer[int64] }
	Uint32 struct{ integer[uint32] }
	Uint64 struct{ integer[uint64] }
)

func (x *Uint32) Or(mask uint32) (was uint32) { return or(&x.v, mask) }

func (x *Uint64) Or(mask uint64) (was uint64) { return or(&x.v, mask) }

func or[T number](p *T, mask T) (was T) {
	steps.At(steps.Store, unsafe.Pointer(p))
	was, *p = *p, *p|mask
	note(p, "sets %#x of %#x", mask, was)
	return was
}

// Bool is atomic.Bool.
type Bool struct{ v bool }

func (x *Bool) Load() bool                      { return load(&x.v) }
func (x *Bool) Store(v bool)                    { store(&x.v, v) }
func (x *Bool) Swap(v bool) bool                { return swap(&x.v, v) }
func (x *Bool) CompareAndSwap(was, v bool) bool { return compareAndSwap(&x.v, was, v) }

// Pointer is atomic.Pointer.
type Pointer[T any] struct{ v to[T] }

func (x *Pointer[T]) Load() *T     { return load(&x.v).p }
func (x *Pointer[T]) Store(v *T)   { store(&x.v, to[T]{v}) }
func (x *Pointer[T]) Swap(v *T) *T { return swap(&x.v, to[T]{v}).p }
func (x *Pointer[T]) CompareAndSwap(was, v *T) bool {
	return compareAndSwap(&x.v, to[T]{was}, to[T]{v})
}
