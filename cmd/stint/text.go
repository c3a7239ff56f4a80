package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/internal/keytext"
)

// width is how many columns a report takes at most.
const width = 100

// percent returns a share with as many digits as it takes to tell it from 0 and from all.
func percent(part, all int64) string {
	if all == 0 || part == 0 {
		return "0%"
	}
	share := 100 * float64(part) / float64(all)
	switch {
	case part == all:
		return "100%"
	case share < 0.01:
		return "<0.01%"
	case share < 10:
		return strconv.FormatFloat(share, 'f', 2, 64) + "%"
	case share > 99.9:
		return ">99.9%"
	}
	return strconv.FormatFloat(share, 'f', 1, 64) + "%"
}

// durationText returns a number of seconds in words.
func durationText(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d >= time.Hour:
		return d.Round(time.Minute).String()[:len(d.Round(time.Minute).String())-len("0s")]
	case d >= time.Second:
		return d.Round(time.Second / 10).String()
	}
	return d.Round(time.Millisecond).String()
}

// keyText returns a key as a report shows it.
func keyText(key string) string {
	if key == keytext.GlobalText {
		return "(all requests)"
	}
	return key
}

// truncate cuts a text to n columns.
func truncate(s string, n int) string {
	s = strings.ReplaceAll(escape(s), "\n", `\n`)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// table writes rows in columns; the first and the second row's numbers are put right.
func table(w io.Writer, rows [][]string, left int) {
	if len(rows) < 2 {
		return
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		b.WriteString("  ")
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < left {
				b.WriteString(cell + pad + "  ")
			} else {
				b.WriteString(pad + cell + "  ")
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	fmt.Fprintln(w)
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// counted is a number of things: "1 line", "2 lines".
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return number(n) + " " + thing
}

// writeText writes the report for a terminal.
func writeText(out io.Writer, r *replay.Report, gates []gate) error {
	var b bytes.Buffer
	logText(&b, &r.Log)
	if n := r.Log.Overflow; n > 0 {
		fmt.Fprintf(&b, "There were too many keys, so %d charges shared the counts of other keys: raise --max-keys\n", n)
	}
	for _, n := range r.NotJudged {
		wrap(&b, "not judged: "+notJudgedText(n))
	}
	for _, n := range r.Against {
		wrap(&b, "not judged, of the limits in force: "+notJudgedText(n))
	}
	fmt.Fprintln(&b)
	for i := range r.Scenarios {
		scenarioText(&b, &r.Scenarios[i], len(r.Scenarios) > 1)
	}
	for _, g := range gates {
		wrap(&b, map[bool]string{true: "passed: ", false: "FAILED: "}[g.Passed]+g.Text)
	}
	_, err := out.Write(b.Bytes())
	return err
}

// logText describes a log.
func logText(b *bytes.Buffer, l *replay.LogReport) {
	fmt.Fprintf(b, "%s from %s to %s,\ntimes in %s\n", counted(l.Requests, "request"), l.From.UTC().Format(time.DateTime),
		l.To.UTC().Format(time.DateTime+" MST"), resolutionText(l))
	if l.Format != "" {
		wrap(b, "format: "+escape(l.Format))
	}
	if l.Sorted > 0 {
		fmt.Fprintf(b, "%s logged out of order, by up to %s, and sorted\n", counted(l.Sorted, "request"),
			durationText(l.Disorder))
	}
	if l.Broken.Lines > 0 {
		fmt.Fprintln(b, brokenText(&l.Broken))
		for _, line := range l.Broken.First {
			fmt.Fprintf(b, "  %s\n", truncate(line, width-2))
		}
	}
	for _, text := range faultTexts(l) {
		wrap(b, text)
	}
	if l.Moved > 0 {
		fmt.Fprintf(b, "%d requests took longer than --window, or were logged too late to be sorted. They are replayed later than they arrived\n", l.Moved)
	}
}

// faultTexts describes clocks that were set back, and files that are incomplete.
func faultTexts(l *replay.LogReport) (all []string) {
	for _, cut := range l.CutOff {
		all = append(all, "the file is incomplete, so requests are missing: "+escape(cut))
	}
	for i, j := range l.Jumps {
		if i == 5 {
			all = append(all, fmt.Sprintf("and %d more such jumps", len(l.Jumps)-i))
			break
		}
		all = append(all, fmt.Sprintf("%s: the clock was set back by %s. All times from this line on are read as that much later", escape(j.At), durationText(j.Back)))
	}
	return all
}

// brokenText says how many lines have no request, before the first of them.
func brokenText(broken *replay.Broken) string {
	var s []string
	if n := broken.Lines - broken.NotRequests; n > 0 {
		s = append(s, counted(n, "line")+" could not be read")
	}
	if n := broken.NotRequests; n == 1 {
		s = append(s, "1 line isn't about a request")
	} else if n > 1 {
		s = append(s, counted(n, "line")+" aren't about requests")
	}
	text := strings.Join(s, ", and ")
	if len(broken.First) > 0 {
		text += ", such as"
	}
	return text
}

// wrap writes a text in lines of no more than width, as far as its words are not longer.
func wrap(b *bytes.Buffer, text string) {
	at := 0
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case at == 0:
		case at+1+n > width:
			b.WriteString("\n  ")
			at = 2
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	b.WriteByte('\n')
}

// resolutionText describes the resolution of a log's times.
func resolutionText(l *replay.LogReport) string {
	s := "microseconds"
	switch {
	case l.Resolution >= 1:
		s = "whole seconds"
	case l.Resolution >= 0.001:
		s = "milliseconds"
	}
	if !l.Durations {
		s += "; the log has no durations"
	}
	return s
}

func notJudgedText(n replay.NotJudged) string {
	s := escape(n.Why)
	if n.Limit != "" {
		s = "limit " + n.Limit + ": " + s
	}
	if n.Route != "" {
		s = "route " + escape(n.Route) + ": " + s
	}
	return s
}

func scenarioText(b *bytes.Buffer, s *replay.Scenario, named bool) {
	if named {
		fmt.Fprintf(b, "If the requests of a second come %s\n\n", s.Name)
	}
	fmt.Fprintf(b, "  %s judged, %d denied (%s)", counted(s.Requests, "request"), s.Denied, percent(s.Denied, s.Requests))
	if s.Waited > 0 {
		fmt.Fprintf(b, ", %d waited up to %s", s.Waited, durationText(s.LongestWait))
	}
	if s.Exempt > 0 {
		fmt.Fprintf(b, ", %d have no limit", s.Exempt)
	}
	fmt.Fprintln(b)
	if s.FailedAnyway > 0 {
		fmt.Fprintf(b, "  %d of the denied requests had failed with a 5xx anyway\n", s.FailedAnyway)
	}
	for _, why := range slices.Sorted(maps.Keys(s.Unjudged)) {
		fmt.Fprintf(b, "  %s not judged: %s\n", counted(s.Unjudged[why], "request"), why)
	}
	for _, why := range slices.Sorted(maps.Keys(s.Reasons)) {
		fmt.Fprintf(b, "  %s denied, not by a limit: %s\n", counted(s.Reasons[why], "request"), why)
	}
	fmt.Fprintln(b)
	rows := [][]string{{"limit", "requests", "denied", "", "waited", "keys", "keys denied", "peak use"}}
	for _, l := range s.Limits {
		name := l.Limit
		if l.DryRun {
			name += " (dry run)"
		}
		rows = append(rows, []string{truncate(name, 30), number(l.Requests), number(l.Denied), percent(l.Denied, l.Requests),
			number(l.Waited), number(l.Keys), number(l.KeysDenied), number(int64(l.PeakUse)) + "%"})
	}
	table(b, rows, 1)
	countsTable(b, "route", s.Routes, "(none)")
	countsTable(b, "status", s.Statuses, "(none)")
	rows = [][]string{{"key", "limit", "denied", "of", "first", "last", "blocked"}}
	for _, k := range s.Top {
		rows = append(rows, []string{truncate(keyText(k.Key), 30), truncate(k.Limit, 14), number(k.Denied),
			number(k.Requests), timeText(k.First), timeText(k.Last), durationText(k.Held)})
	}
	table(b, rows, 2)
	if s.Flips == nil {
		return
	}
	f := s.Flips
	fmt.Fprintf(b, "  against the limits in force: %d change to denied, %d to allowed", f.ToDenied, f.ToAllowed)
	if f.Unjudged > 0 {
		fmt.Fprintf(b, ", %d can't be compared", f.Unjudged)
	}
	fmt.Fprint(b, "\n\n")
	rows = [][]string{{"key", "limit", "to denied", "to allowed"}}
	for _, k := range f.Keys {
		rows = append(rows, []string{truncate(cmp.Or(keyText(k.Key), "(none)"), 44), truncate(k.Limit, 24),
			number(k.ToDenied), number(k.ToAllowed)})
	}
	table(b, rows, 2)
	if f.Others > 0 {
		fmt.Fprintf(b, "  and %d more\n\n", f.Others)
	}
}

// timeText formats a time for a report's table.
func timeText(t time.Time) string { return t.UTC().Format("01-02 15:04:05") }

func countsTable(b *bytes.Buffer, what string, all map[string]*replay.Count, none string) {
	rows := [][]string{{what, "requests", "denied", "", "waited"}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := all[name]
		rows = append(rows, []string{truncate(cmp.Or(name, none), 50), number(c.Requests), number(c.Denied),
			percent(c.Denied, c.Requests), number(c.Waited)})
	}
	table(b, rows, 1)
}
