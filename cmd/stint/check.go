package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/cmd/stint/internal/serve"
	"github.com/stint-go/stint/internal/keytext"
	"github.com/stint-go/stint/policy"
)

// mistake is a mistake that check reports.
type mistake struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

func checkCommand() *cobra.Command {
	var format string
	var config bool
	var funcs functions
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Report every mistake in policy files, with what to write instead",
		Long: `Check reads policy files and reports every mistake with its line and column, and what to write
instead. It also reports

- limits that never deny a request first, because another limit always denies before: a quota that the rate
  beside it can't exhaust, or a rate that is faster and has a larger burst than another;
- routes that no request matches, because of their pattern or because more specific routes match before;
- limits at the top of the file that apply to no request, because a route matches every request.

A file may use names of the application's functions, such as key: tenant. They are mistakes unless
--func declares them: --func tenant.

With --serve, the files are for stint serve. Check also reports what the server can't apply, such as concurrency,
and limits without a name.

With --ratelimit-config, the files are configurations of envoyproxy/ratelimit for stint serve. Check
prints the rules that they stand for.

It exits with 1 if there is a mistake, and with 2 if a file can't be read.`,
		Example: `  stint check policy.yaml
  stint check --func tenant --func rows --format github policies/*.yaml
  stint check --serve policy.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, files []string) error {
			if format != "text" && format != "json" && format != "github" {
				return fmt.Errorf("--format %s: write text, json or github", format)
			}
			if config {
				return checkConfigs(c, format, files)
			}
			all := []mistake{}
			for _, file := range files {
				found, err := check(file, funcs)
				if err != nil {
					return err
				}
				all = append(all, found...)
			}
			return writeMistakes(c, format, all, len(files))
		},
	}
	c.Flags().StringVar(&format, "format", "text",
		"`FORMAT` of the output: text, json, or github for annotations in GitHub Actions")
	c.Flags().BoolVar(&funcs.serve, "serve", false, "the files are for stint serve: also report what it can't apply")
	c.Flags().BoolVar(&config, "ratelimit-config", false, "the files are configurations of envoyproxy/ratelimit")
	funcs.flag(c)
	funcs.planFlag(c)
	return c
}

// checkConfigs checks configurations of envoyproxy/ratelimit, and prints their rules if they have no mistake.
func checkConfigs(c *cobra.Command, format string, files []string) error {
	rules, err := serve.Rules(files)
	all := []mistake{}
	if found := policy.Errors(nil); errors.As(err, &found) {
		for _, e := range found {
			all = append(all, mistake{e.File, e.Line, e.Column, e.Text})
		}
	} else if err != nil {
		return err
	}
	for _, rule := range rules {
		if format == "text" {
			fmt.Fprintln(c.OutOrStdout(), escape(rule))
		}
	}
	return writeMistakes(c, format, all, len(files))
}

// check returns the mistakes in a file. The error is about reading it.
func check(file string, funcs functions) (all []mistake, err error) {
	p, l, _, err := funcs.load(file)
	if err != nil {
		found := policy.Errors(nil)
		if !errors.As(err, &found) {
			return nil, err
		}
		for _, e := range found {
			all = append(all, mistake{e.File, e.Line, e.Column, withHint(e)})
		}
		return all, nil
	}
	for _, f := range append(replay.Unmatched(l), replay.Idle(l)...) {
		line, column := p.Where(f.Limit)
		text := fmt.Sprintf("limit %q: %s", f.Limit, f.Text)
		switch {
		case f.Limit == "":
			line, column = p.WhereRoute(f.Route)
			text = fmt.Sprintf("route %q: %s", f.Route, f.Text)
		case f.Route != "":
			text = fmt.Sprintf("limit %q in route %q: %s", f.Limit, f.Route, f.Text)
		}
		all = append(all, mistake{file, max(line, 1), max(column, 1), text})
	}
	slices.SortStableFunc(all,
		func(a, b mistake) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return all, nil
}

// withHint returns the text of a mistake, and how to declare an unknown name to this command.
func withHint(e *policy.Error) string {
	if e.Unknown == "" {
		return e.Text
	}
	return e.Text + "; for this command, give --func " + e.Unknown
}

// writeMistakes writes the mistakes.
func writeMistakes(c *cobra.Command, format string, all []mistake, files int) error {
	out := c.OutOrStdout()
	switch format {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		if err := e.Encode(all); err != nil {
			return err
		}
	case "github":
		for _, m := range all {
			fmt.Fprintf(out, "::error file=%s,line=%d,col=%d::%s\n", property.Replace(m.File), m.Line, m.Column,
				data.Replace(m.Text))
		}
	default:
		for _, m := range all {
			fmt.Fprintf(out, "%s:%d:%d: %s\n", escape(m.File), m.Line, m.Column, escape(m.Text))
		}
		if len(all) == 0 {
			fmt.Fprintf(out, "%d without a mistake\n", files)
		}
	}
	if len(all) > 0 {
		return errFailed
	}
	return nil
}

// What a workflow command escapes in its text and in its properties.
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Write the JSON Schema of policy files, for editors",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(policy.Schema())
			return err
		},
	}
}

func explainCommand() *cobra.Command {
	var headers []string
	var peer string
	var funcs functions
	c := &cobra.Command{
		Use:   "explain FILE METHOD URL",
		Short: "Show the limits, keys and costs that apply to a request",
		Example: `  stint explain policy.yaml POST /login
  stint explain --plan free policy.yaml GET /items
  stint explain policy.yaml GET https://api.example.com/items -H 'X-API-Key: k1' --peer 192.0.2.7`,
		Args: cobra.ExactArgs(3),
		RunE: func(c *cobra.Command, args []string) error {
			_, l, predicates, err := funcs.load(args[0])
			if err != nil {
				return err
			}
			r, err := request(args[1], args[2], headers, peer)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			x := replay.Explain(l, r, predicates...)
			for _, what := range x.Unknown {
				fmt.Fprintf(out, "unknown: %s\n", escape(toFileWords(what)))
			}
			switch {
			case x.Exempt:
				fmt.Fprintln(out, "exempt: an entry under skip matches the request")
				return nil
			case x.Blocked:
				fmt.Fprintln(out, "denied with 403: an entry under block matches the request")
				return nil
			case x.Route == "":
				fmt.Fprintln(out, "route: none, so the limits at the top of the file apply")
			default:
				fmt.Fprintf(out, "route: %s\n", escape(x.Route))
			}
			for _, e := range x.Limits {
				fmt.Fprintf(out, "limit %s: %s\n", e.Limit, ruleInFile(e.Rule))
				if e.DryRun {
					fmt.Fprintln(out, "  dry run: it only reports")
				}
				if e.Hidden {
					fmt.Fprintln(out, "  hidden: no header field shows it")
				}
				if e.Key == keytext.GlobalText {
					fmt.Fprintln(out, "  key:  all requests share it")
				} else if e.Key != "" {
					fmt.Fprintf(out, "  key:  %s, from %s\n", escape(e.Key), escape(keyInFile(e.KeyFrom)))
				} else {
					fmt.Fprintf(out, "  key:  from %s\n", escape(keyInFile(e.KeyFrom)))
				}
				if e.Cost > 0 {
					fmt.Fprintf(out, "  cost: %d\n", e.Cost)
				}
				if e.Left != "" {
					fmt.Fprintf(out, "  but %s\n", escape(toFileWords(e.Left)))
				}
			}
			if len(x.Limits) == 0 && len(x.Unknown) == 0 {
				fmt.Fprintln(out, "no limit applies: the request passes")
			}
			return nil
		},
	}
	c.Flags().StringArrayVarP(&headers, "header", "H", nil, "`NAME: VALUE` of a header field")
	c.Flags().StringVar(&peer, "peer", "192.0.2.1", "`ADDRESS` that the request is sent from")
	funcs.flag(c)
	funcs.planFlag(c)
	return c
}

// request makes the request that a command line describes.
func request(method, target string, headers []string, peer string) (*http.Request, error) {
	r, err := http.NewRequest(method, target, nil)
	if err != nil {
		return nil, err
	}
	if r.URL.Host == "" && !strings.HasPrefix(target, "/") {
		return nil, fmt.Errorf("%s: write a URL such as https://api.example.com/items, or a path such as /items", target)
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, fmt.Errorf("-H %q: write NAME: VALUE", h)
		}
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); strings.EqualFold(name, "Host") {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	if _, err := netip.ParseAddr(peer); err != nil {
		if _, err := netip.ParseAddrPort(peer); err != nil {
			return nil, fmt.Errorf("--peer %s: write an address, such as 192.0.2.7", peer)
		}
	}
	r.RemoteAddr = peer
	r.RequestURI = r.URL.RequestURI()
	return r, nil
}
