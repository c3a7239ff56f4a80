package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/policy"
)

// suggestFlags is the flags of suggest.
type suggestFlags struct {
	input
	functions
	reportFlags
	key      string
	routes   []string
	share    string
	headroom float64
	horizon  time.Duration
	out      string
}

func suggestCommand() *cobra.Command {
	var s suggestFlags
	c := &cobra.Command{
		Use:   "suggest --key KEY [--route PATTERN]... [LOG...]",
		Short: "Suggest rates and bursts that would have denied nothing to nearly all clients in access logs",
		Long: `Suggest computes, for each route, the smallest rate and burst that would have denied nothing to 99 %, 99.9 % or
99.99 % of the keys. It multiplies these numbers by --headroom and writes them as a policy file. Requests that
match no --route get a limit of their own.

Many pairs of a rate and a burst fit the same keys. Suggest compares round rates by the number of requests that a
key gets through within --horizon. It accepts pairs that admit at most a quarter more than the strictest pair. Of
these, it takes one whose rate has the shortest unit (second, minute, hour), and of several the strictest.

If the log's times are whole seconds, suggest reads it twice: once with all requests of a second at its start,
and once with the requests spread evenly over it. The larger result counts.

99 % needs a log with 1,000 keys, 99.9 % one with 10,000 and 99.99 % one with 100,000. With fewer than 1,000
keys, suggest writes no policy: it shows the rate, burst and quota that each of the busiest keys needs. The log
must cover ten times --horizon.

The exit code is 1 if no policy can be suggested.`,
		Example: `  stint suggest --key remote-ip access.log.1.gz access.log
  stint suggest --key remote-ip --route 'POST /login' --route '/api/' --out policy.yaml --html report.html access.log
  stint suggest --key '{header: X-API-Key}' --field header.X-API-Key=request.headers.X-Api-Key.0 access.json
  stint suggest --key user --func user=header.Remote-User access.log`,
		RunE: func(c *cobra.Command, logs []string) error { return s.run(c, logs) },
	}
	f := c.Flags()
	f.StringVar(&s.key, "key", "",
		"`KEY` that identifies a client, written as in a policy file: remote-ip, {header: X-API-Key}, or a name of --func")
	f.StringArrayVar(&s.routes, "route", nil,
		"give the requests that match this `PATTERN` a limit of their own, such as 'POST /login'; may be repeated")
	f.StringVar(&s.share, "share", "",
		"`SHARE` of the keys to which the policy must deny nothing: 99%, 99.9% or 99.99% (default: the largest for which the log has enough keys)")
	f.Float64Var(&s.headroom, "headroom", 1.25, "multiply the smallest numbers that fit the log by this `FACTOR`")
	f.DurationVar(&s.horizon, "horizon", time.Minute,
		"compare rates by the number of requests that they admit within this `TIME`")
	f.StringVar(&s.out, "out", "", "write the policy to `FILE`, instead of printing it below the table")
	s.input.flags(c)
	s.functions.flag(c)
	s.reportFlags.flags(c)
	cobra.CheckErr(c.MarkFlagRequired("key"))
	return c
}

// shareNames are how the shares of replay.ShareSuggestion are written.
var shareNames = []string{"99%", "99.9%", "99.99%"}

func shareName(share float64) string {
	return strconv.FormatFloat(100*share, 'f', -1, 64) + "%"
}

// run runs suggest.
func (s *suggestFlags) run(c *cobra.Command, logs []string) error {
	if s.share != "" && !slices.Contains(shareNames, s.share) {
		return fmt.Errorf("--share %s: write 99%%, 99.9%% or 99.99%%", s.share)
	}
	limiter, err := s.limiter() // before a log is read
	if err != nil {
		return err
	}
	s.readsOf(limiter, nil)
	options := []replay.SuggestOption{replay.WithHeadroom(s.headroom), replay.WithHorizon(s.horizon)}
	more, clearProgress := s.replayOptions(c)
	for _, o := range more {
		options = append(options, o)
	}
	s.input.window = max(s.reportFlags.window, 0)
	log, done, err := s.open(logs, c.InOrStdin())
	defer done()
	if err != nil {
		return err
	}
	r, err := replay.Suggest(s.limiter, log, options...)
	clearProgress()
	if err != nil {
		return err
	}
	for i := range r.NotJudged {
		r.NotJudged[i].Why = toFileWords(r.NotJudged[i].Why)
	}
	w := s.describe(r)
	if s.out != "" && w.Policy != "" {
		if err := replaceFile(s.out, func(out io.Writer) error { _, err := io.WriteString(out, w.Policy); return err }); err != nil {
			return err
		}
	}
	if s.html != "" {
		if err := replaceFile(s.html, func(out io.Writer) error { return suggestPage.Execute(out, w) }); err != nil {
			return err
		}
	}
	if err := s.write(c.OutOrStdout(), w); err != nil {
		return err
	}
	if w.Policy == "" {
		return errFailed
	}
	return nil
}

// write writes the suggestions to the terminal.
func (s *suggestFlags) write(out io.Writer, w *suggestionText) error {
	if s.asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			*replay.Suggestions
			Policy string `json:"policy,omitempty"`
		}{w.Suggestions, w.Policy})
	}
	var b bytes.Buffer
	w.text(&b)
	if s.out == "" && w.Policy != "" {
		fmt.Fprintln(&b, w.Policy)
	}
	_, err := out.Write(b.Bytes())
	return err
}

// names returns the names of the limits: that of the requests which match no route, and those of
// the routes.
func (s *suggestFlags) names() []string {
	all := []string{"per-client"}
	for _, route := range s.routes {
		words := strings.FieldsFunc(strings.ToLower(route),
			func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
		base := strings.Join(words, "-")
		if base == "" {
			base = "route"
		}
		name := base
		for n := 2; slices.Contains(all, name); n++ {
			name = base + "-" + strconv.Itoa(n)
		}
		all = append(all, name)
	}
	return all
}

// document returns a policy. numbers(0) returns the limit of the requests that match no route,
// and numbers(i) the limit of route i. If numbers returns no limit, document leaves it out.
// It writes why, if there is a reason, as a comment.
func (s *suggestFlags) document(head []string, numbers func(i int) (limit, why string)) string {
	var b strings.Builder
	for _, line := range head {
		fmt.Fprintf(&b, "# %s\n", line)
	}
	fmt.Fprintf(&b, "version: 1\nkey: %s\n", s.key)
	names := s.names()
	entry := func(i int, indent string) {
		limit, why := numbers(i)
		if why != "" {
			fmt.Fprintf(&b, "%s# %s\n", indent, why)
		}
		switch {
		case limit != "":
			field := "limits"
			if indent != "" {
				field = "only" // the limit at the top was computed without the routes' requests
			}
			fmt.Fprintf(&b, "%s%s: [{name: %s, %s}]\n", indent, field, names[i], limit)
		case indent != "":
			fmt.Fprintf(&b, "%sexempt: true # until you write limits\n", indent)
		default:
			fmt.Fprintf(&b, "# So requests that match no route have no limit.\n")
		}
	}
	entry(0, "")
	if len(s.routes) > 0 {
		b.WriteString("routes:\n")
	}
	for i, route := range s.routes {
		quoted, _ := json.Marshal(route) // YAML has the same escapes
		fmt.Fprintf(&b, "  %s:\n", quoted)
		entry(i+1, "    ")
	}
	return b.String()
}

// limiter returns a limiter with the keys and routes of the suggested policy.
func (s *suggestFlags) limiter() (*stint.Limiter, error) {
	if strings.ContainsAny(s.key, "\r\n") {
		return nil, errors.New("--key: write it in one line")
	}
	text := s.document(nil, func(int) (string, string) { return "rate: 1/1s", "" })
	_, l, err := s.parse("", []byte(text))
	found := policy.Errors(nil)
	if !errors.As(err, &found) {
		return l, err
	}
	var all []error
	for _, e := range found {
		switch route := (e.Line - 5) / 2; { // two lines each, behind four others
		case e.Line == 2:
			all = append(all, fmt.Errorf("--key %s: %s", s.key, withHint(e)))
		case e.Line >= 5 && route < len(s.routes):
			all = append(all, fmt.Errorf("--route %s: %s", s.routes[route], e.Text))
		default:
			all = append(all, fmt.Errorf("--key and --route: %s", e.Text))
		}
	}
	return nil, errors.Join(all...)
}

// suggestionText is suggestions in words, and the policy that they make.
type suggestionText struct {
	*replay.Suggestions
	Title  string
	Policy string // the file, or "" if nothing is suggested
	Shown  []chosenLimit
}

// chosenLimit is a limit with the share that the policy goes by.
type chosenLimit struct {
	*replay.LimitSuggestion
	Chosen *replay.ShareSuggestion // nil if nothing is suggested
}

// describe puts suggestions into words.
func (s *suggestFlags) describe(r *replay.Suggestions) *suggestionText {
	w := &suggestionText{Suggestions: r, Title: "limits by " + s.key}
	found := false
	for i := range r.Limits {
		l := &r.Limits[i]
		chosen := chosenLimit{LimitSuggestion: l}
		for k := range l.Shares {
			share := &l.Shares[k]
			if share.Unknown == "" && (s.share == "" || s.share == shareName(share.Share)) {
				chosen.Chosen = share
				found = true
			}
		}
		w.Shown = append(w.Shown, chosen)
	}
	if !found {
		return w
	}
	head := []string{
		fmt.Sprintf("Suggested from %d requests from %s to %s.", r.Log.Requests, r.Log.From.UTC().Format(time.DateTime),
			r.Log.To.UTC().Format(time.DateTime+" MST")),
		fmt.Sprintf("The numbers are %s times the smallest that deny nothing to the share of keys below.",
			factor(r.Headroom)),
	}
	if n := r.LeftOut["empty key"]; n > 0 {
		head = append(head, counted(n, "request")+" had no key. The policy denies such requests, unless you write empty-key: skip.")
	}
	w.Policy = s.document(head, func(i int) (limit, why string) {
		for _, l := range w.Shown {
			if l.Limit != s.names()[i] {
				continue
			}
			if l.Chosen == nil {
				return "", "Nothing is suggested: " + s.unknown(l.Shares) + "."
			}
			c := l.Chosen
			return rateText(c.Suggested), fmt.Sprintf("%s of the %d keys need at most %s.", shareName(c.Share), l.Keys,
				numbers(c.Least))
		}
		return "", "The log doesn't say enough."
	})
	return w
}

// unknown returns why nothing is suggested.
func (s *suggestFlags) unknown(all []replay.ShareSuggestion) string {
	for _, share := range all {
		if s.share == "" || s.share == shareName(share.Share) {
			return share.Unknown
		}
	}
	return ""
}

func factor(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

// periods are how the periods of suggested rates are written.
var periods = map[int64]string{1: "1s", 60: "1m", 3600: "1h", 86400: "1d"}

// rateText writes a rate as policy files do.
func rateText(r replay.Rate) string {
	return fmt.Sprintf("rate: %d/%s, burst: %d", r.Units, periods[r.Seconds], r.Burst)
}

// text writes the suggestions for a terminal.
func (w *suggestionText) text(b *bytes.Buffer) {
	logText(b, &w.Log)
	for _, n := range w.NotJudged {
		wrap(b, "nothing is suggested: "+notJudgedText(n))
	}
	for _, why := range slices.Sorted(maps.Keys(w.LeftOut)) {
		wrap(b, fmt.Sprintf("%s left out: %s", counted(w.LeftOut[why], "request"), why))
	}
	fmt.Fprintln(b)
	rows := [][]string{{"route", "requests", "keys", "share", "needs", "with headroom", "keys denied"}}
	var unknown []string
	for _, l := range w.Shown {
		name := truncate(orNone(l.Route), 24)
		requests, keys := number(l.Requests), number(l.Keys)
		for i, share := range l.Shares {
			if share.Unknown == "" {
				rows = append(rows, []string{name, requests, keys, shareName(share.Share), numbers(share.Least),
					numbers(share.Suggested), number(share.Touched)})
				continue
			}
			what := "nothing"
			if i > 0 {
				what = "nothing more"
			}
			line := what + " is suggested: " + share.Unknown
			switch {
			case l.Route != "":
				line = truncate(l.Route, 24) + ": " + line
			case len(w.Shown) > 1:
				line = "requests that match no route: " + line
			}
			unknown = append(unknown, line)
			break // larger ones are not known either
		}
	}
	table(b, rows, 1)
	for _, line := range unknown {
		wrap(b, line)
	}
	if len(unknown) > 0 {
		fmt.Fprintln(b)
	}
	w.busiestText(b)
	rows = [][]string{{"denied key", "route", "requests", "burst needed"}}
	for _, l := range w.Shown {
		if l.Chosen == nil {
			continue
		}
		for _, k := range l.Chosen.Top {
			rows = append(rows, []string{truncate(keyText(k.Key), 44), truncate(orNone(l.Route), 24), number(k.Requests),
				number(k.Burst)})
		}
	}
	table(b, rows, 2)
}

// busiestText writes the needs of the busiest keys, where there are too few keys to suggest anything.
func (w *suggestionText) busiestText(b *bytes.Buffer) {
	rows := [][]string{{"busiest key", "route", "requests", "rate it needs", "busiest hour", "busiest day"}}
	for _, l := range w.Shown {
		for _, k := range l.Busiest {
			rows = append(rows, []string{truncate(keyText(k.Key), 30), truncate(orNone(l.Route), 18), number(k.Requests),
				numbers(k.Rate), atLeast(k.Hour), atLeast(k.Day)})
		}
	}
	if len(rows) == 1 {
		return
	}
	table(b, rows, 2)
	for _, note := range busiestNotes {
		wrap(b, note)
	}
	fmt.Fprintln(b)
}

// busiestNotes explain the table of the busiest keys.
var busiestNotes = []string{
	"The rate and burst, or a quota of the busiest hour or day (UTC), would have denied the key nothing.",
	"So few keys are no base for a policy: choose numbers for all keys yourself, with headroom.",
	"A - needs a longer log.",
}

// atLeast is a number in a table, or - if it isn't known.
func atLeast(n int64) string {
	if n == 0 {
		return "-"
	}
	return number(n)
}

// numbers is a rate and a burst in a table.
func numbers(r replay.Rate) string {
	if r == (replay.Rate{}) {
		return "-"
	}
	return fmt.Sprintf("%d/%s burst %d", r.Units, periods[r.Seconds], r.Burst)
}

func orNone(route string) string {
	if route == "" {
		return "(none)"
	}
	return route
}

// reportFlags is the flags of commands that read logs and write reports.
type reportFlags struct {
	asJSON   bool
	html     string
	hashKeys bool
	top      int64
	maxKeys  int64
	window   time.Duration
	quiet    bool
}

func (o *reportFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.asJSON, "json", false, "write the report as JSON")
	f.StringVar(&o.html, "html", "", "also write the report to `FILE`, as a page with charts")
	f.BoolVar(&o.hashKeys, "hash-keys", false, "show hashes instead of keys, for reports that you share")
	f.Int64Var(&o.top, "top", 20, "list at most `N` keys")
	f.DurationVar(&o.window, "window", 0,
		"the `DURATION` by which lines may be out of order, and that requests may take (default 5m; for a busy log less, but at least 30s)")
	f.Int64Var(&o.maxKeys, "max-keys", 1<<20, "keep at most `N` keys in memory")
	f.BoolVar(&o.quiet, "quiet", false, "show no progress")
}

// replayOptions returns the options of the flags. clearProgress removes the line about progress.
func (o *reportFlags) replayOptions(c *cobra.Command) (options []replay.Option, clearProgress func()) {
	options = []replay.Option{replay.WithTop(o.top), replay.WithMaxKeys(o.maxKeys)}
	if c.Flags().Changed("window") {
		options = append(options, replay.WithWindow(o.window))
	}
	if o.hashKeys {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		options = append(options, replay.WithHashedKeys(secret))
	}
	clearProgress = func() {}
	if show := c.ErrOrStderr(); !o.quiet && isTerminal(show) {
		options = append(options, replay.WithProgress(func(at replay.Progress) {
			fmt.Fprintf(show, "\r%d requests, up to %s ", at.Requests, at.At.Format(time.DateTime))
		}))
		clearProgress = func() { fmt.Fprint(show, "\r\x1b[K") }
	}
	return options, clearProgress
}
