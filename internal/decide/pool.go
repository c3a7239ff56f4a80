package decide

import "sync"

// calls is a pool of empty calls, for charges that Grants settle and results that they return.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Borrow returns an empty call, which decides nothing: see Grants.Recall. Free ends its use.
func Borrow() *Call { return calls.Get().(*Call) }

// Free ends the use of a call that Borrow has returned.
func (c *Call) Free() {
	c.Reset()
	calls.Put(c)
}
