package stint

import (
	"fmt"
	"slices"

	"github.com/stint-go/stint/internal/mistakes"
	"github.com/stint-go/stint/internal/mistakes/keysample"
)

// This file has warnings: what users are told of likely mistakes, when a limiter is checked for them, and
// who is warned. How each is found is in package mistakes.

// WithoutWarnings turns off warnings of the given kinds, for the limiter and limiters derived
// from it. Without arguments it turns off all warnings. kinds are names in docs/warnings.md; New
// returns an error for any other name. The names are:
//
//	forwarding-header  port-in-key  untrusted-proxy  keys-never-repeat  one-key
//	rebuilt  cost-too-high  nothing-waits  store-forgets  quota-unreachable
//	update-drops  store-full  name-conflict  no-key
//
// By default each likely mistake is logged once, observers get an EventWarning, and
// Limiter.Describe lists the mistake. To find mistakes, the limiter inspects the first 10,000
// requests of each key of WithKey and WithLimitSource, without storing keys. It inspects no
// requests if port-in-key, untrusted-proxy, keys-never-repeat, one-key and no-key are all
// turned off.
func WithoutWarnings(kinds ...string) Option {
	return option("WithoutWarnings", func(c *config) {
		if len(kinds) == 0 {
			c.ignored = mistakes.AllKinds
		}
		for _, name := range kinds {
			if k, known := mistakes.KindOf(name); known {
				c.ignored.Add(k)
			} else {
				c.Errs.Add(fmt.Sprintf("WithoutWarnings(%.80q)", name), "", "use "+mistakes.KindNames())
			}
		}
	})
}

// warningOf returns the warning of a finding.
func warningOf(f *mistakes.Finding) Warning {
	kind := f.Kind.String()
	return Warning{kind, f.Limits, f.Text(), "https://github.com/stint-go/stint/blob/main/docs/warnings.md#" + kind}
}

// notice is a new warning that isn't sent yet.
type notice struct {
	finding mistakes.Finding
	sender  *sender
}

// sendWarnings logs new warnings, and sends them to observers. The caller holds no lock, since
// loggers and observers are the application's code.
func sendWarnings(all []notice) {
	for _, n := range all {
		w := warningOf(&n.finding)
		n.sender.sendSafely(Event{Kind: EventWarning, Warning: &w})
	}
}

// warn adds findings about a version, and sends the new ones as warnings.
func (f *family) warn(v *version, found ...mistakes.Finding) {
	sendWarnings(f.notices(v, found...))
}

// notices adds findings about a version, and returns notices of the new ones.
func (f *family) notices(v *version, found ...mistakes.Finding) (news []notice) {
	for _, n := range f.findings.Add(&v.view, found...) {
		news = append(news, notice{n, &v.events})
	}
	return news
}

// warningsAbout returns the warnings that apply to a version.
func (f *family) warningsAbout(v *version) (all []Warning) {
	for _, found := range f.findings.About(&v.view) {
		all = append(all, warningOf(&found))
	}
	return all
}

// views returns what is checked of the family's limiters. The caller holds f.mu.
func (f *family) views() []*mistakes.View {
	all := make([]*mistakes.View, len(f.members))
	for i, m := range f.members {
		all[i] = &m.current.Load().view
	}
	return all
}

// checkLimiter checks a limiter that was made or updated from the options c, and opens the samples of their
// keys. It returns notices of the warnings that are new, to be sent without f.mu. The caller holds f.mu.
// Requests never run it.
func (f *family) checkLimiter(l *Limiter, c *config) []notice {
	v := l.current.Load()
	all := f.notices(v, slices.Concat(mistakes.NameConflicts(&f.names, f.views()), mistakes.InPlans(&v.view))...)
	var samples []*keysample.Sample
	for _, k := range c.Keys() {
		samples = append(samples, f.registry.Generation().Names().Sample(k))
	}
	for _, fn := range v.view.Plans.Base.Funcs {
		samples = append(samples, fn.SourceSample)
	}
	for _, s := range samples {
		if s == nil {
			continue // no limit has the key
		}
		all = append(all, f.checkKey(s)...)
		if v.view.SamplesKeys() {
			s.Start(func() { f.warnOfKey(s) })
		}
	}
	return all
}

// warnOfKey warns of what a sample has shown so far.
func (f *family) warnOfKey(s *keysample.Sample) {
	f.mu.Lock()
	all := f.checkKey(s)
	f.mu.Unlock()
	sendWarnings(all)
}

// checkKey returns notices of what a sample has shown and is new. The caller holds f.mu.
func (f *family) checkKey(s *keysample.Sample) (news []notice) {
	views := f.views()
	mistakes.WrongKeys(views, s, func(first int, found mistakes.Finding) {
		if f.findings.Put(views, found) {
			news = append(news, notice{found, &f.members[first].current.Load().events})
		}
	})
	return news
}

// warnOfForgetting warns that the server of the limiter's store evicts keys, as why says, or ends that
// warning if why is nil.
func (l *Limiter) warnOfForgetting(why error) {
	l.storeForgets.Store(why != nil)
	if why != nil {
		v := l.currentVersion()
		l.family.warn(v, mistakes.ForgetfulStore(&v.view, why.Error(), l.storeForgets.Load))
	}
}
