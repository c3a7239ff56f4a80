package stintotel

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/stint-go/stint"
)

// What a request takes, alone and observed.
func BenchmarkRequest(b *testing.B) {
	for name, observe := range map[string]func(*stint.Limiter) error{
		"Alone": func(*stint.Limiter) error { return nil },
		"Observed": func(l *stint.Limiter) error {
			_, err := Observe(l, WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))))
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			lim, err := stint.New(stint.WithKey(stint.RemoteIP()), stint.Rate(1_000_000, time.Second, stint.WithBurst(1_000_000_000)), stint.WithoutWarnings())
			if err == nil {
				err = observe(lim)
			}
			if err != nil {
				b.Fatal(err)
			}
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.Header())
				if err := lim.Admit(w, r, func(http.ResponseWriter, *http.Request) {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
