package policy_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/policy"
)

// WithPlan makes the limits of a plan those of all requests, in the place of a function.
func TestWithPlan(t *testing.T) {
	const text = "version: 1\nkey: global\nlimits: [{name: own, rate: 9/1h}]\nroutes:\n  /free: {exempt: true}\n" +
		"plans:\n  small: {limits: [{name: allowance, rate: 2/1h}]}\n  large: {limits: [{name: allowance, rate: 5/1h}]}\n  none: {limits: []}\ndefault-plan: small\n"
	for plan, want := range map[string]int{"small": 2, "large": 5, "none": 9} {
		p, err := policy.Parse("p.yaml", []byte(text), policy.WithPlan(plan))
		if err != nil {
			t.Fatal(err)
		}
		if line, _ := p.Where("allowance"); (line > 0) != (plan != "none") {
			t.Errorf("%s: its limit is in line %d", plan, line)
		}
		lim, err := stint.New(p.Options()...)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/": want, "/free": 20} {
			passed := 0
			for range 20 {
				r, _ := http.NewRequest("GET", path, nil)
				if lim.Admit(httptest.NewRecorder(), r, func(http.ResponseWriter, *http.Request) {}) == nil {
					passed++
				}
			}
			if passed != want {
				t.Errorf("%s: %d requests of %s pass, want %d", plan, passed, path, want)
			}
		}
	}
	for want, err := range map[string]error{
		`8:3: no plan is called "smal": write small`:               parsed("version: 1\nkey: global\nlimits: [{name: own, rate: 9/1h}]\nroutes:\n  /free: {exempt: true}\n\nplans:\n  small: {limits: []}\n", policy.WithPlan("smal")),
		`the file has no plans, but the plan "small" is asked for`: parsed("version: 1\nkey: global\nlimits: [{rate: 9/1h}]\n", policy.WithPlan("small")),
		`WithPlan(""): pass the name of a plan`:                    parsed(text, policy.WithPlan("")),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func parsed(text string, opts ...policy.Option) error {
	_, err := policy.Parse("p.yaml", []byte(text), opts...)
	return err
}
