package waiting

// list is a doubly linked list. Its nodes are its users' handles.
type list[T any] struct {
	front, back *node[T]
	n           int
}

type node[T any] struct {
	value      T
	prev, next *node[T]
}

// insertAfter inserts value behind at, or first if at is nil.
func (l *list[T]) insertAfter(at *node[T], value T) *node[T] {
	e := &node[T]{value: value, prev: at}
	if at == nil {
		e.next, l.front = l.front, e
	} else {
		e.next, at.next = at.next, e
	}
	if e.next == nil {
		l.back = e
	} else {
		e.next.prev = e
	}
	l.n++
	return e
}

func (l *list[T]) remove(e *node[T]) {
	if e.prev == nil {
		l.front = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.back = e.prev
	} else {
		e.next.prev = e.prev
	}
	l.n--
}

// at returns the i-th node, counting from the nearer end.
func (l *list[T]) at(i int) *node[T] {
	if i <= l.n/2 {
		e := l.front
		for ; i > 0; i-- {
			e = e.next
		}
		return e
	}
	e := l.back
	for i = l.n - 1 - i; i > 0; i-- {
		e = e.prev
	}
	return e
}
