package stintotel

import (
	"reflect"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/stint-go/stint/store/memstore"
)

// memory is a store in memory, and the name that it is reported under.
type memory struct {
	name  string
	store *memstore.Store
}

// reporterPlace is where a store is reported.
type reporterPlace struct {
	provider any // nil: the default one
	store    *memstore.Store
}

// reporters are those of each store, in the order of their registration.
// Only the first reports, so that limiters that share a store don't count it twice. When it
// stops, the next one reports.
var reporters = struct {
	sync.Mutex
	byPlace map[reporterPlace][]*memory
}{byPlace: map[reporterPlace][]*memory{}}

func (m *memory) place(provider any) reporterPlace { return reporterPlace{provider, m.store} }

// begin makes m the last reporter of its store.
func (m *memory) begin(provider any) {
	reporters.Lock()
	defer reporters.Unlock()
	at := m.place(provider)
	reporters.byPlace[at] = append(reporters.byPlace[at], m)
}

func (m *memory) end(provider any) {
	reporters.Lock()
	defer reporters.Unlock()
	at := m.place(provider)
	rest := slices.DeleteFunc(reporters.byPlace[at], func(o *memory) bool { return o == m })
	if reporters.byPlace[at] = rest; len(rest) == 0 {
		delete(reporters.byPlace, at)
	}
}

// reports reports whether m is the first reporter of its store.
func (m *memory) reports(provider any) bool {
	reporters.Lock()
	defer reporters.Unlock()
	all := reporters.byPlace[m.place(provider)]
	return len(all) > 0 && all[0] == m
}

// providerID is the value by which a provider is recognized. The default one may change what it is,
// from OpenTelemetry's stand-in to the program's own.
func providerID(provider, global metric.MeterProvider) any {
	switch {
	case !reflect.TypeOf(provider).Comparable():
		return new(byte) // like no other
	case provider == global:
		return nil
	}
	return provider
}
