package engine

import "time"

// The functions of package store that only packages of this module may call. Package store sets
// them. They are here, and not exported by it, so that other modules have no part of them; package
// inside has them with their types, and says what they do.
var (
	Hash          func(limit any) uint64
	Full          func(limit any) int64
	TermsOf       func(limit any) Terms
	StepPlain     func(n *Numbers, now, a int64, charge, result any) (next int64, ok bool)
	Behind        func(limit any, a, b Receipt) bool
	UnitsRefunded func(limit any, was, is Receipt) int64
	Decider       func(limit any) any
	DecidedBy     func(limit, decider any) any
	Veto          func() any
	Counts        func(charge, ban any) bool
	Around        func(window any, wall int64, before, after int) []Span
	Fixed         func(window any) (length int64, ok bool)
	Nominal       func(window any) int64
	NewSpecError  func(field, problem, write string, names ...any) any
	Names         func(specError any) []string
)

// SetClock makes a store of package memstore, which sets it, go by now, and not by time.Now. Then a
// day's requests are decided in seconds, beside limiters of the same process that go by the real
// time. It is for a store that nothing has used.
var SetClock func(memory any, now func() time.Time)

// Receipt is what a store.Receipt says of a charge.
type Receipt struct{ Instant, Mark, Cost int64 }
