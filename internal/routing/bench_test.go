package routing

import (
	"testing"
)

// Requests of the usual kind, and one that has several interpretations.
func BenchmarkFind(b *testing.B) {
	rt, problems := New([]string{"POST /login", "GET /files/", "/users/{id}", "GET /search", "api.example.com/"})
	if problems != nil {
		b.Fatal(problems)
	}
	for _, request := range []string{"POST /login x", "GET /users/7 x", "GET /files/app.min.css x", "GET /nowhere x", "POST /%6cogin.json x"} {
		r := requested(b, request)
		b.Run(request, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rt.Find(r)
			}
		})
	}
}
