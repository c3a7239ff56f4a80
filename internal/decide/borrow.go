package decide

import "sync"

// borrowed are empty calls, for what Grants ask of a store and say of themselves.
var borrowed = sync.Pool{New: func() any { return new(Call) }}

// Borrow returns an empty call, which decides nothing: see Grants.Recall. Free ends its use.
func Borrow() *Call { return borrowed.Get().(*Call) }

// Free ends the use of a call that Borrow has returned.
func (c *Call) Free() {
	c.Reset()
	borrowed.Put(c)
}
