package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
)

// planFlags is the flags of plan.
type planFlags struct {
	input
	functions
	reportFlags
	policy, against string
	maxDenied       string
	maxFlips        int64
}

func planCommand() *cobra.Command {
	var p planFlags
	c := &cobra.Command{
		Use:   "plan --policy FILE [--against FILE] [LOG...]",
		Short: "Replay access logs through a policy, and show which requests it would deny",
		Long: `Plan replays access logs through the limits of a policy file, and reports which requests a server with these
limits would have denied. Logs may be compressed with gzip or zstd. Several logs are merged by time. Without a
log, or for -, plan reads standard input.

Missing data is never guessed. If the log lacks the key or the cost of a limit, or the durations that a
concurrency limit needs, the report shows the limit as not judged. If the log's times are whole seconds, plan
replays it twice: once with all requests of a second at its start, and once with the requests spread evenly over
it. The report shows both results, and a gate takes the worse one.

The exit code is 1 if a gate (--max-denied, --max-flips) fails. For a gate, lines that can't be read and
requests that can't be judged count as denied, and as changed. A gate also fails if one of the limits can't be
judged, or no request can.`,
		Example: `  stint plan --policy new.yaml --against old.yaml access.log.1.gz access.log
  stint plan --policy new.yaml --format '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_time' access.log
  stint plan --policy new.yaml --field header.X-API-Key=request.headers.X-Api-Key.0 access.json
  stint plan --policy new.yaml --plan free access.log
  stint plan --policy new.yaml --max-denied 0.1% --quiet access.log`,
		RunE: func(c *cobra.Command, logs []string) error { return p.run(c, logs) },
	}
	f := c.Flags()
	f.StringVar(&p.policy, "policy", "", "`FILE` with the limits to plan")
	f.StringVar(&p.against, "against", "",
		"`FILE` with the limits in force: also report the requests that these allow and --policy denies, or the other way round")
	p.input.flags(c)
	p.functions.flag(c)
	p.planFlag(c)
	p.reportFlags.flags(c)
	f.StringVar(&p.maxDenied, "max-denied", "",
		"fail if more than this `SHARE` of the requests would be denied, such as 0.1%")
	f.Int64Var(&p.maxFlips, "max-flips", -1,
		"fail if the outcome of more than `N` requests changes, compared with --against (default: no limit)")
	f.Lookup("max-flips").DefValue = "0" // so that -1 isn't shown
	cobra.CheckErr(c.MarkFlagRequired("policy"))
	return c
}

// flags adds the flags for reading logs.
func (in *input) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&in.format, "format", "",
		"`FORMAT` of the logs, if it isn't recognized: one of "+
			strings.Join(replay.Formats(), ", ")+", or the server's own log_format (nginx), LogFormat (Apache) or log-format (HAProxy)")
	f.StringArrayVar(&in.fields, "field", nil,
		"`PART=NAME`: the field of a JSON log, or the column of a W3C log, that has a part of a request. The parts are end, start, took (or s, ms, us, ns, for a duration in this unit), peer, method, target, query, request, host, status, bytes and header.NAME")
	f.StringVar(&in.zone, "zone", "",
		"the time `ZONE` of logged times that have none, such as Europe/Berlin or Local (default UTC)")
	f.StringVar(&in.proxy, "proxy", "",
		"the logs were written by a proxy at this `ADDRESS`, in front of the server that has the limits. If the proxy's clients are proxies, too, such as a CDN, the log needs the X-Forwarded-For that the proxy received")
}

// run runs plan.
func (p *planFlags) run(c *cobra.Command, logs []string) error {
	share, err := parseShare(p.maxDenied)
	if err != nil {
		return err
	}
	if p.maxFlips < 0 && c.Flags().Changed("max-flips") {
		return fmt.Errorf("--max-flips %d: write 0 or more", p.maxFlips)
	}
	if p.maxFlips >= 0 && p.against == "" {
		return errors.New("--max-flips needs --against: flips are changes against the limits in force")
	}
	_, limiter, predicates, err := p.load(p.policy) // before a log is read
	if err != nil {
		return err
	}
	p.readsOf(limiter, predicates)
	options := []replay.RunOption{replay.WithPredicates(predicates...)}
	if p.against != "" {
		_, limiter, predicates, err := p.load(p.against)
		if err != nil {
			return err
		}
		p.readsOf(limiter, predicates)
		options = append(options, replay.WithAgainst(p.newLimiter(p.against), predicates...))
	}
	more, clearProgress := p.replayOptions(c)
	for _, o := range more {
		options = append(options, o)
	}
	p.input.window = max(p.reportFlags.window, 0)
	log, done, err := p.open(logs, c.InOrStdin())
	defer done()
	if err != nil {
		return err
	}
	report, err := replay.Run(p.newLimiter(p.policy), log, options...)
	clearProgress()
	if err != nil {
		return err
	}
	for _, all := range [][]replay.NotJudged{report.NotJudged, report.Against} {
		for i := range all {
			all[i].Why = toFileWords(all[i].Why)
		}
	}
	gates := p.gates(report, share)
	if err := p.write(c.OutOrStdout(), report, gates); err != nil {
		return err
	}
	for _, g := range gates {
		if !g.Passed {
			return errFailed
		}
	}
	return nil
}

// newLimiter returns a function that makes the limiter of a policy file.
func (p *planFlags) newLimiter(path string) func() (*stint.Limiter, error) {
	return func() (*stint.Limiter, error) {
		_, l, _, err := p.load(path)
		return l, err
	}
}

// write writes the report. The page is written first, and whole or not at all.
func (p *planFlags) write(out io.Writer, report *replay.Report, gates []gate) error {
	if p.html != "" {
		if err := replaceFile(p.html, func(w io.Writer) error { return writePage(w, report, gates, p.title()) }); err != nil {
			return err
		}
	}
	if p.asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			*replay.Report
			Gates []gate `json:"gates,omitempty"`
		}{report, gates})
	}
	return writeText(out, report, gates)
}

func (p *planFlags) title() string {
	title := filepath.Base(p.policy)
	if p.against != "" {
		title += " against " + filepath.Base(p.against)
	}
	return title
}

// replaceFile replaces a file by renaming, so that it is never half-written.
func replaceFile(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".stint-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the renaming there is none
	if err := errors.Join(f.Chmod(0o644), write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// gate is a condition that a plan has to meet.
type gate struct {
	Passed bool   `json:"passed"`
	Text   string `json:"text"`
}

// gates returns the gates that were asked for, by the scenario that is worse for each. What isn't known never
// passes: unread lines and requests that weren't judged count as denied, and as changed.
func (p *planFlags) gates(r *replay.Report, share *big.Rat) (all []gate) {
	at := ""
	if len(r.Scenarios) > 1 {
		at = ". The log's times are whole seconds: this is the worse of its two replays"
	}
	unread := r.Log.Unread()
	if share != nil {
		s := worst(r, func(s *replay.Scenario) int64 { return s.Denied + s.NotJudged() })
		unknown := unread + s.NotJudged()
		denied, requests := s.Denied+unknown, s.Requests+unknown
		passed := requests == 0 || big.NewRat(denied, requests).Cmp(share) <= 0
		all = append(all, gate{passed, fmt.Sprintf("max-denied %s: %d of %s would be denied (%s)%s%s", p.maxDenied, denied, counted(requests, "request"), percent(denied, requests), countedUnknown(unread, s.NotJudged()), at)})
	}
	if p.maxFlips >= 0 {
		s := worst(r, func(s *replay.Scenario) int64 { return s.Flips.ToDenied + s.Flips.ToAllowed + s.Flips.Unjudged })
		flips := s.Flips.ToDenied + s.Flips.ToAllowed + s.Flips.Unjudged + unread
		all = append(all, gate{flips <= p.maxFlips, fmt.Sprintf("max-flips %d: %s would change%s%s", p.maxFlips, counted(flips, "request"), countedUnknown(unread, s.Flips.Unjudged), at)})
	}
	if len(all) == 0 {
		return nil
	}
	if n := len(r.Log.CutOff); n > 0 {
		all = append(all, gate{false, counted(int64(n), "incomplete file") + ": requests are missing"})
	}
	if r.Scenarios[0].Requests == 0 {
		all = append(all, gate{false, "no request of the log could be judged"})
	}
	if n := len(r.NotJudged); n > 0 {
		all = append(all, gate{false, counted(int64(n), "limit") + " could not be judged: their denials are unknown"})
	}
	if n := len(r.Against); n > 0 && p.maxFlips >= 0 {
		all = append(all, gate{false, counted(int64(n), "limit") + " of --against could not be judged: their denials are unknown"})
	}
	return all
}

// worst returns the scenario for which a number is largest.
func worst(r *replay.Report, of func(*replay.Scenario) int64) *replay.Scenario {
	worst := &r.Scenarios[0]
	for i := range r.Scenarios {
		if s := &r.Scenarios[i]; of(s) > of(worst) {
			worst = s
		}
	}
	return worst
}

// countedUnknown says how many of the requests of a gate are unknown.
func countedUnknown(unread, notJudged int64) string {
	switch {
	case unread > 0 && notJudged > 0:
		return fmt.Sprintf(", counting %s and %s that could not be judged", counted(unread, "unread line"),
			counted(notJudged, "request"))
	case unread > 0:
		return ", counting " + counted(unread, "unread line")
	case notJudged > 0:
		return ", counting " + counted(notJudged, "request") + " that could not be judged"
	}
	return ""
}

// parseShare parses a share such as 0.1% or 0.001; "" is nil.
func parseShare(s string) (*big.Rat, error) {
	if s == "" {
		return nil, nil
	}
	number, isPercent := strings.CutSuffix(s, "%")
	share, ok := new(big.Rat).SetString(number)
	if !ok || strings.ContainsAny(number, "/eEpPxX_") {
		return nil, fmt.Errorf("--max-denied %s: write a share, such as 0.1%%", s)
	}
	if isPercent {
		share.Quo(share, big.NewRat(100, 1))
	}
	if share.Sign() < 0 || share.Cmp(big.NewRat(1, 1)) > 0 {
		return nil, fmt.Errorf("--max-denied %s: write a share from 0%% to 100%%", s)
	}
	return share, nil
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
