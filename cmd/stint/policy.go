package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/cmd/stint/internal/serve"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/policy"
	"github.com/stint-go/stint/store/memstore"
)

// functions are the flags that declare the application's functions, which a file may use.
type functions struct {
	names []string
	plan  string // of all requests
	serve bool   // the file is for stint serve
}

func (f *functions) flag(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.names, "func", nil,
		"`NAME` of a function of the application that the file uses, such as a key or a cost. This command can't call the function. "+
			"NAME=header.FIELD reads the key from a header field instead")
}

func (f *functions) planFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.plan, "plan", "", "`NAME` of a plan in the file, which then applies to all requests")
}

// errFunction stands for the answer of a function of the application.
var errFunction = errors.New("a function of the application, which this command doesn't have")

// options returns the options under which a file is read: the names stand for functions that
// are never called.
func (f functions) options() ([]policy.Option, error) {
	options := []policy.Option{
		policy.WithOptions(stint.WithLogger(slog.New(slog.DiscardHandler)), stint.WithoutWarnings()),
		serve.Descriptors,
		policy.WithSecret([]byte("stands in for the application's secret")),
	}
	if f.serve { // its limits need names, because they are on a store that others share
		options = append(options, policy.WithServer(), policy.WithGivenKeys(),
			policy.WithOptions(stint.WithStore(memstore.New())))
	}
	if f.plan != "" {
		options = append(options, policy.WithPlan(f.plan))
	} else {
		options = append(options, policy.WithPlanFunc(func(*http.Request) (string, error) { return "", errFunction }))
	}
	for _, name := range f.names {
		name, from, mapped := strings.Cut(name, "=")
		if mapped {
			field, ok := strings.CutPrefix(from, "header.")
			if !ok || field == "" {
				return nil, fmt.Errorf("--func %s=%s: write %[1]s=header.FIELD", name, from)
			}
			options = append(options, policy.WithKey(name, stint.Header(field)))
			continue
		}
		options = append(options,
			policy.WithKey(name, stint.KeyFunc(func(*http.Request) (string, error) { return "", errFunction })),
			policy.WithCostFunc(name, func(*http.Request) int64 { return 1 }),
			policy.WithSettleFunc(name, func(*http.Request, int, int64) int64 { return replay.UnknownCost }),
			policy.WithPriorityFunc(name, func(*http.Request) int { return 0 }),
			policy.WithPredicate(name, func(*http.Request) bool { return false }),
			policy.WithDenyHandler(name, http.NotFoundHandler()))
	}
	return options, nil
}

// load reads a policy and makes a limiter of it. It also returns what the entries of skip and block look at.
func (f functions) load(path string) (*policy.Policy, *stint.Limiter, []keys.Reads, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, err
	}
	p, l, err := f.parse(path, data)
	if err != nil {
		return nil, nil, nil, err
	}
	return p, l, f.predicateReads(data), nil
}

// parse makes a limiter of a policy.
func (f functions) parse(name string, data []byte) (*policy.Policy, *stint.Limiter, error) {
	options, err := f.options()
	if err != nil {
		return nil, nil, err
	}
	p, err := policy.Parse(name, data, options...)
	if err != nil {
		return nil, nil, err
	}
	l, err := stint.New(p.Options()...)
	return p, l, err
}
