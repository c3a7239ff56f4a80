// Package lua holds the scripts that decide inside Redis or Valkey: the twins of the
// steps in package internal/algorithm, which they must agree with to the integer. Package redisstore
// runs them.
//
// # Files
//
//	the loops                        take.lua, several.lua, settle.lua: decide charges, several
//	                                 together, settle earlier ones; renew.lua, reset.lua: prolong
//	                                 leases, forget keys
//	an algorithm's blocks            tokenbucket.lua, fixedwindow.lua, …
//	what several algorithms share    levels.lua, window.lua
//	what all scripts share           prelude.lua, store.lua, outcome.lua, general.lua
//
//	go run github.com/stint-go/stint/lua/print@latest
//
// prints the script of one token bucket with these comments, and docs/internals/scripts.md says how to read
// it. The head of a loop describes its arguments (ARGV) and its answer; the head of an algorithm's
// file what it adds to those, and what it keeps at a key.
//
// Scripts are composed: package internal/scripts puts them together. The loops of take.lua
// and settle.lua know no algorithm. Each algorithm's file has blocks that are inlined into
// the loops, and a script contains only the blocks of the algorithms that a call needs. That
// of a call whose decisions have a charge each has one loop, which looks at a key and charges
// it; only that of others contains several.lua.
// Making a function costs a server as much as a decision. So what most calls need is in
// blocks, and what few need is in functions, which a script makes when it meets the first
// state or charge that needs them. So a server knows a script for each set of algorithms
// that is charged together. Comments aren't sent.
//
// # Blocks
//
// A line that begins with --: begins a block. The blocks of an algorithm are, in the
// order in which a loop runs them:
//
//	arguments  not code: names of the arguments of a charge (ARGV), which are locals
//	           of these names in all blocks, as text
//	strings    if its keys hold no strings, so that they need not be read: sets strings,
//	           how many of the first keys may hold some
//	setup      what is the same for all charges of a column. Sets peek: the charge
//	           costs nothing
//	looksetup  the same, for load and look. Several charges are looked at first and
//	           then made, with setup before each
//	load       reads the state v of key i (text, or false if there is none or it isn't a
//	           string) and brings it to the present, in locals. Sets dirty if the
//	           state has to be written even if the decision is denied
//	look       sets fits: how many of g equal charges fit; -1 if that isn't known
//	           without more of the calendar. Sets raw: the state found, if it isn't v
//	carry      not code: names of the locals of load and look that denied, charge and save
//	           need, which are carried over from the look. None may be nil: a table that nils are
//	           put into grows badly. In columns of dry runs, fits is carried in any case
//	carryif    others, which are carried only if the last of carry isn't false; else nil
//	chargesetup
//	           what is the same for all charges of a column, for charge and save
//	charge     makes g charges, in the locals, or in the server if there is no save
//	denied     changes the locals because the decision was denied by another charge; sets
//	           dirty
//	save       says what to store at the key, and for how long (store.lua)
//	fresh      if save adds to states that were compared as text: sets new, for a key
//	           never seen
//	rest       runs if nothing is charged and there is no save
//	amend      after setup and load: makes an earlier charge cost due, which is
//	           diff more; its receipt is in charged, instant, mark and lease. Sets dirty,
//	           or writes by itself and sets left, the state left
//	functions  fields of the table rare
//
// A block of another name is a part that several blocks of its file have in common. They insert it, as the
// loops insert blocks.
//
// A block that needs a function says so before it changes anything in the server:
//
//	if not rare then lacking = row break end
//
// The loop then makes the functions and looks again. The locals of blocks must not have
// names that the loops use: the ones above, and those at the top of take.lua's own
// blocks. A block must not break in any other case, and never in charge and save.
//
// # Failures
//
// A command may fail in the middle of a script: a right is missing, or the key isn't what
// it should be. What has been written by then stays. So a block that has charged or
// settled something sets wrote, and an error after that says so (outcome.lua). No key is
// left without a lifetime by a script that may not give one, and nothing is charged by a
// server that was out of memory before: store.lua says how.
//
// # Other interpreters
//
// Scripts also run on Lua 5.4 and on gopher-lua. So text becomes a number by tonumber before
// math.min, and digits with leading zeros always; and no assignment to several names reads a name
// further left in it, which gopher-lua has assigned by then.
//
// An algorithm is a file here (a LeakyBucket shares that of the TokenBucket), and a constant of Set and a row of the
// table in internal/scripts.
package lua

import "embed"

// Files are the files of this directory that end in .lua.
//
//go:embed *.lua
var Files embed.FS
