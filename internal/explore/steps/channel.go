package steps

import "unsafe"

// Case is a channel that a select may receive from or send to: its object, nil for a nil
// channel; whether that can be done at the moment; and what does it.
type Case struct {
	Object unsafe.Pointer
	Ready  func() bool
	Pass   func()
}

// Select is a step that waits until one of the cases is ready, does it, and returns its
// index; or -1 if none is ready and there is something else to do. Each of several that are
// ready is tried.
func Select(orElse bool, cases ...Case) int {
	r := running
	if r == nil || r.current == nil || r.pruned {
		return now(orElse, cases)
	}
	o := op{touch: touch{Load, r.number(unsafe.Pointer(r.current))}, waits: !orElse}
	for i := range cases {
		if object := cases[i].Object; object != nil {
			o.more = append(o.more, touch{Store, r.number(object)})
		}
	}
	if len(o.more) == 0 && orElse {
		return -1
	}
	o.ways = func() (n int) {
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
	return r.choice(cases)
}

// choice takes a select's way. Of channels that it doesn't take, it matters only whether
// they are ready.
func (r *Run) choice(cases []Case) int {
	e := &r.events[len(r.events)-1]
	looked := make([]touch, 0, len(e.more))
	taken, way, k := -1, r.way, 0
	for i := range cases {
		if cases[i].Object == nil {
			continue
		}
		t := touch{Load, e.more[k].obj}
		k++
		if cases[i].ready() {
			if way == 0 {
				taken, t.kind = i, Store
			}
			way--
		}
		looked = append(looked, t)
	}
	e.more = looked
	if taken >= 0 {
		cases[taken].Pass()
	}
	return taken
}

func (c *Case) ready() bool { return c.Object != nil && c.Ready() }

// now is Select where nothing pauses.
func now(orElse bool, cases []Case) int {
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

// Choose is a step that comes to each number below n, in a run of its own.
func Choose(n int) int {
	r := running
	if r == nil || r.current == nil || r.pruned {
		return 0
	}
	r.pause(op{touch: touch{Load, r.number(unsafe.Pointer(r.current))}, ways: func() int { return n }})
	return r.way
}
