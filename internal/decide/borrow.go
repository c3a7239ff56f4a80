package decide

// Borrow returns an empty call of a pool, for what grants say of themselves: see Grants.Recall.
// It decides nothing. Free ends its use.
func Borrow() *Call { return calls.Get().(*Call) }

// Free ends the use of a call that Borrow has returned.
func (c *Call) Free() { c.free() }
