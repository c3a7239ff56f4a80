package compile

import (
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/internal/mistakes/keysample"
	"github.com/stint-go/stint/internal/optionerror"
	"github.com/stint-go/stint/internal/read"
	"github.com/stint-go/stint/store"
)

// Func is one WithLimitFunc or WithLimitSource: what the limits that it returns don't set themselves, and the
// names that they must not have.
type Func struct {
	Owner    any // that of Config
	Defaults Settings
	// Source is the key by which the limits are read; nil if the function has the request.
	Source *keys.Key

	registry    *Registry
	storeShared bool
	generation  *Generation
	sample      *keysample.Sample // of the default key
}

// Option returns the name of the function's option.
func (f *Func) Option() string {
	if f.Source != nil {
		return "WithLimitSource"
	}
	return "WithLimitFunc"
}

// StoreShared reports whether others may use the limiter's store, so that limits need a name.
func (f *Func) StoreShared() bool { return f.storeShared }

// Check returns why the function can't return a rule, apart from problems of the rule itself.
func (f *Func) Check(r *Rule) optionerror.List {
	if _, problems := r.OwnLimit(); problems != nil {
		return nil
	}
	if f.generation.Names().rules[r.Spec.Name] != nil {
		return optionerror.List{NameTaken("", r.Spec.Name)}
	}
	_, problems := f.Entry(r)
	return problems
}

// resolved is an entry made for a limit that a Func returned.
type resolved struct {
	from  *Func
	entry *read.Entry
}

// Entry compiles a limit that the function returned, or finds what was compiled before.
func (f *Func) Entry(r *Rule) (*read.Entry, optionerror.List) {
	if d := r.resolved.Load(); d != nil && d.from == f {
		return d.entry, nil
	}
	l, problems := f.limit(r)
	if problems != nil {
		return nil, problems
	}
	settings := r.Settings.WithDefaults(f.Defaults)
	if settings.Key.Given {
		return nil, optionerror.List{{Limit: r.Spec.Name, Option: "WithKey(GivenKey())", What: NoGivenKey,
			Write: "use another key, or leave WithKey out for the limiter's"}}
	}
	if t := r.Line.Tenant; t != nil && t.Given {
		return nil, optionerror.List{{Limit: r.Spec.Name, Option: "WithFairQueue(GivenKey())", What: NoGivenKey,
			Write: "use another key, or leave WithFairQueue out"}}
	}
	sample := f.generation.Names().samples[settings.Key]
	if sample == nil {
		sample = new(keysample.Sample) // a key of its own isn't sampled
	}
	e := f.registry.entry(r, l, settings, sample)
	if m := checkFixedCost("", e); m != nil {
		return nil, optionerror.List{m}
	}
	if problems := checkWaiters(r, e); problems != nil {
		return nil, problems.At("", e.Name())
	}
	r.resolved.Store(&resolved{f, e})
	return e, nil
}

// limit returns the store's limit for a rule that the function returned.
func (f *Func) limit(r *Rule) (*store.Limit, optionerror.List) {
	n := f.generation.Names()
	if l := n.limits[r]; l != nil {
		return l, nil
	}
	if n.rules[r.Spec.Name] != nil {
		return nil, optionerror.List{NameTaken("", r.Spec.Name)}
	}
	l, problems := r.OwnLimit()
	if problems != nil {
		return nil, problems
	}
	return r.decideInProcess(l, f.registry.Adaptive), nil
}
