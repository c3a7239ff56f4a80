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

// place is where a store is reported.
type place struct {
	provider any // nil: the default one
	store    *memstore.Store
}

// reporters are all that would report a store in a place, in the order in which they came.
// Only the first does, so that limiters that share a store don't count it twice. When it
// stops, the next goes on.
var reporters = struct {
	sync.Mutex
	of map[place][]*memory
}{of: map[place][]*memory{}}

func (m *memory) place(provider any) place { return place{provider, m.store} }

// begin makes m the last reporter of its store.
func (m *memory) begin(provider any) {
	reporters.Lock()
	defer reporters.Unlock()
	at := m.place(provider)
	reporters.of[at] = append(reporters.of[at], m)
}

func (m *memory) end(provider any) {
	reporters.Lock()
	defer reporters.Unlock()
	at := m.place(provider)
	rest := slices.DeleteFunc(reporters.of[at], func(o *memory) bool { return o == m })
	if reporters.of[at] = rest; len(rest) == 0 {
		delete(reporters.of, at)
	}
}

// reports reports whether m is the first reporter of its store.
func (m *memory) reports(provider any) bool {
	reporters.Lock()
	defer reporters.Unlock()
	all := reporters.of[m.place(provider)]
	return len(all) > 0 && all[0] == m
}

// identity is the value by which a provider is recognized. The default one may change what it is,
// from OpenTelemetry's stand-in to the program's own.
func identity(given, usual metric.MeterProvider) any {
	switch {
	case !reflect.TypeOf(given).Comparable():
		return new(byte) // like no other
	case given == usual:
		return nil
	}
	return given
}
