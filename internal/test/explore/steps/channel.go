package steps

import "unsafe"

// Case is a channel that a select may receive from or send to: its object, nil for a nil
// channel; whether that can be done now; and the function that does it.
type Case struct {
	Object unsafe.Pointer
	Ready  func() bool
	Pass   func()
}

// Select is a step that waits until one of the cases is ready, does it, and returns its
// index; or -1 if none is ready and the select has a default. Each of several that are
// ready is explored.
func Select(orElse bool, cases ...Case) int {
	r := running
	if r == nil || r.current == nil || r.pruned {
		return selectNow(orElse, cases)
	}
	o := op{access: access{Load, r.number(unsafe.Pointer(r.current))}, waits: !orElse}
	for i := range cases {
		if object := cases[i].Object; object != nil {
			o.others = append(o.others, access{Store, r.number(object)})
		}
	}
	if len(o.others) == 0 && orElse {
		return -1
	}
	o.choices = func() (n int) {
		for i := range cases {
			if cases[i].ready() {
				n++
			}
		}
		if n == 0 && orElse {
			n = 1
		}
		return n
	}
	r.pause(o)
	return r.takeCase(cases)
}

// takeCase takes the chosen case of a select. For the other channels, it matters only whether
// they are ready.
func (r *Run) takeCase(cases []Case) int {
	e := &r.events[len(r.events)-1]
	accesses := make([]access, 0, len(e.others))
	taken, choice, k := -1, r.choice, 0
	for i := range cases {
		if cases[i].Object == nil {
			continue
		}
		t := access{Load, e.others[k].obj}
		k++
		if cases[i].ready() {
			if choice == 0 {
				taken, t.kind = i, Store
			}
			choice--
		}
		accesses = append(accesses, t)
	}
	e.others = accesses
	if taken >= 0 {
		cases[taken].Pass()
	}
	return taken
}

func (c *Case) ready() bool { return c.Object != nil && c.Ready() }

// selectNow is Select outside of actors.
func selectNow(orElse bool, cases []Case) int {
	for i := range cases {
		if cases[i].ready() {
			cases[i].Pass()
			return i
		}
	}
	switch r := running; {
	case orElse:
		return -1
	case r != nil && r.pruned:
		panic(pruned{})
	}
	panic("steps: a channel is waited for where nobody would come")
}

// Choose is a step that returns each number below n, in a run of its own.
func Choose(n int) int {
	r := running
	if r == nil || r.current == nil || r.pruned {
		return 0
	}
	r.pause(op{access: access{Load, r.number(unsafe.Pointer(r.current))}, choices: func() int { return n }})
	return r.choice
}
