// Package wire encodes the arguments of scripts and decodes their answers. It depends on the
// codecs and the names of keys, but not on the client that makes the calls.
//
// The scripts decide and keep the states. The results of a decision are worked out here, by the steps of
// package store on the states that the script found. So the scripts' answers are short,
// and no figure is worked out in two ways.
//
// Functions that return arguments leave room before them for the beginning of the command: its
// name, the script, the number of keys, and the keys.
package wire

import (
	"github.com/stint-go/stint/internal/scripts"
	"github.com/stint-go/stint/store"
)

// arguments are those of a script that decides or settles charges; the scripts document their
// layout. They are text: the client would turn numbers into text anyway.
type arguments struct {
	list []any
	set  scripts.Set // the algorithms
	// listed: some keys hold no strings.
	listed bool
	Times
}

func (a *arguments) add(args ...any) { a.list = append(a.list, args...) }
func (a *arguments) number(n int64)  { a.list = append(a.list, text(n)) }

// charge adds the arguments of c on the limit, or of a charge of one.
func (a *arguments) charge(l *limitArgs, c *store.Charge) {
	a.set |= l.set
	a.listed = a.listed || l.listed
	at := len(a.list)
	a.list = append(a.list, l.args...)
	l.vary(&l.limit, a.list[at:], c, &a.Times)
}

// strings adds how many of the first keys may hold strings, if some keys hold none.
func (a *arguments) strings(n int) {
	if a.listed {
		a.number(int64(n))
	}
}
