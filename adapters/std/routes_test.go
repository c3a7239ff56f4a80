package stinthttp

import (
	"net/http"
	"testing"

	"github.com/stint-go/stint/internal/routetest"
)

func TestNoSpellingSlipsPast(t *testing.T) {
	routetest.Run(t, New(routetest.Limits()...)(routetest.Mux()))
}

func FuzzSpellings(f *testing.F) {
	routetest.Fuzz(f, map[string]http.Handler{"ServeMux": New(routetest.Limits()...)(routetest.Mux())})
}
