package policy_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
)

// A cost that a limit never lets pass is reported where it stands in the limit, or at the limit
// if its route or the top says it.
func TestCostTooHigh(t *testing.T) {
	for text, at := range map[string]string{
		"version: 1\nkey: remote-ip\nlimits:\n- rate: 10/s\n  name: calls\n  cost: 20\n":                          "6:9",
		"version: 1\nkey: remote-ip\nlimits:\n- rate: 10/s\n  name: calls\ncost: 20\n":                            "4:3",
		"version: 1\nkey: remote-ip\nlimits:\n- rate: 10/s\n  name: calls\nroutes:\n  POST /report: {cost: 20}\n": "4:3",
		"version: 1\nkey: remote-ip\nlimits:\n- concurrency: 10\n  name: calls\n  cost: 20\n":                     "6:9",
	} {
		_, err := policy.Parse("limits.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "limits.yaml:"+at+": a request costs 20, but the limit never admits more than 10: use a lower cost, or raise the limit") {
			t.Errorf("%s%v", text, err)
		}
	}
	text := "version: 1\nkey: remote-ip\nlimits:\n- rate: 10/s\n  name: calls\n  algorithm: leaky-bucket\n  max-wait: 300ms\n  cost: 5\n"
	if _, err := policy.Parse("limits.yaml", []byte(text)); err == nil || err.Error() != "limits.yaml:7:13: a request costs 5, but the limit admits at most 4 within the longest wait of 300ms: use a lower cost, or a longer wait" {
		t.Error(err)
	}
	if _, err := policy.Parse("limits.yaml", []byte(strings.Replace(text, "cost: 5", "cost: 4", 1))); err != nil {
		t.Error(err)
	}
	if _, err := policy.Parse("limits.yaml", []byte("version: 1\nkey: remote-ip\ncost: 20\nlimits:\n- rate: 10/s\n  burst: 20\n- concurrency: 2\n")); err != nil {
		t.Error(err)
	}
}
