package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// A file of many routes: the time to read it is linear in the number of routes, also if each has a mistake.
func BenchmarkRoutes(b *testing.B) {
	for name, pattern := range map[string]string{"right": "GET /{tenant}/r%d/{id}", "wrong": "get /{tenant}/r%d/:id"} {
		var text strings.Builder
		text.WriteString("version: 1\nkey: remote-ip\nlimits: [{name: all, rate: 100/1m}]\nroutes:\n")
		for i := range 10_000 {
			fmt.Fprintf(&text, "  "+pattern+":\n    limits: [{name: r%[1]d, rate: 5/1m}]\n", i)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, err := policy.Parse("routes.yaml", []byte(text.String()))
				if (err == nil) != (name == "right") {
					b.Fatal(err)
				}
				if err == nil {
					if _, err := stint.New(p.Options()...); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
