package replay

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// haproxyWords has nginx's variables for HAProxy's words. %t, %T, %Tl and %Ts aren't among them: they are when the
// connection was accepted, and a connection may have many requests. Nor is %Tt, which counts from then on.
var haproxyWords = map[string]string{
	"ci": "remote_addr", "cp": "remote_port", "tr": "start", "trg": "start", "trl": "start", "Ta": "milliseconds",
	"r": "request", "HM": "request_method", "HU": "request_uri", "HP": "request_uri", "HPO": "request_uri", "ST": "status",
}

// haproxyTimes has the layouts of HAProxy's times.
var haproxyTimes = map[string]string{
	"tr": "02/Jan/2006:15:04:05.000", "trg": "02/Jan/2006:15:04:05 -0700", "trl": "02/Jan/2006:15:04:05 -0700",
}

// haproxyTexts are the words with text values. HAProxy puts these in quotes if the format asks for quotes.
var haproxyTexts = map[string]bool{
	"ci": true, "bi": true, "fi": true, "si": true, "r": true, "ft": true, "f": true, "b": true, "s": true, "CC": true,
	"CS": true, "ID": true,
	"H": true, "HM": true, "HU": true, "HP": true, "HPO": true, "HQ": true, "HV": true, "sslc": true,
	"sslv": true, "": true,
}

// isHAProxy finds words that only HAProxy has, and its expressions.
var isHAProxy = regexp.MustCompile(`%(\{[^}]*\})?(\(\w*\))?(\[|(ci|tr|trg|trl|ST|HM|HU|HP|HPO|Ta|ft)\b)`)

// isEnvoy finds Envoy's commands: %START_TIME%, %REQ(:METHOD)%.
var isEnvoy = regexp.MustCompile(`%[A-Z][A-Z_]{2,}(\([^)]*\))?(:\d+)?%`)

// haproxyTokens cuts a log-format of HAProxy.
func haproxyTokens(layout string) ([]token, error) {
	layout = strings.NewReplacer(`\"`, `"`, `\ `, ` `, `\\`, `\`).Replace(layout)
	var all []token
	text := func(s string) {
		if n := len(all); n > 0 && !all[n-1].variable {
			all[n-1].text += s
		} else if s != "" {
			all = append(all, token{text: s})
		}
	}
	quotedByDefault := false
	for rest := layout; rest != ""; {
		before, after, found := strings.Cut(rest, "%")
		if text(before); !found {
			break
		}
		if strings.HasPrefix(after, "%") {
			text("%")
			rest = after[1:]
			continue
		}
		quoted := quotedByDefault
		if strings.HasPrefix(after, "{") {
			var flags string
			if flags, after, found = strings.Cut(after[1:], "}"); !found {
				return nil, fmt.Errorf("log format: %%{%s without a }", flags)
			}
			quoted = quoted && !strings.Contains(flags, "-Q") || strings.Contains(flags, "+Q")
		}
		if strings.HasPrefix(after, "(") { // a name for other formats
			if _, after, found = strings.Cut(after, ")"); !found {
				return nil, errors.New("log format: %( without a )")
			}
		}
		word := ""
		switch n := strings.IndexFunc(after, func(c rune) bool {
			return !(c-'a' < 26 && c >= 'a' || c-'A' < 26 && c >= 'A' || c-'0' < 10 && c >= '0')
		}); {
		case strings.HasPrefix(after, "["):
			if after = afterBracket(after); after == "" {
				return nil, errors.New("log format: %[ without a ]")
			}
			after = after[1:]
		case n < 0:
			word, after = after, ""
		case n == 0:
			return nil, fmt.Errorf("log format: a %% without a word at %q", "%"+after)
		default:
			word, after = after[:n], after[n:]
		}
		rest = after
		switch name := haproxyWords[word]; {
		case word == "o":
			quotedByDefault = quoted
			if len(all) == 0 { // nothing is written
				rest = strings.TrimLeft(rest, " ")
			}
		case word == "HQ":
			if n := len(all); n == 0 || all[n-1] != (token{text: "request_uri", variable: true}) {
				return nil, errors.New("log format: %HQ is read behind %HP: write %HP%HQ")
			}
		case (word == "hr" || word == "hs") && capturesEnd(all, rest):
			all = all[:len(all)-1] // without captures, HAProxy writes nothing: they count as a part of the value before
		default:
			if name == "" {
				name = "unused"
			}
			inQuotes := quoted && haproxyTexts[word]
			if inQuotes {
				text(`"`)
			}
			all = append(all, token{text: name, variable: true, layout: haproxyTimes[word]})
			if inQuotes {
				text(`"`)
			}
		}
	}
	return all, nil
}

// afterBracket returns a text from the bracket on that closes its first.
func afterBracket(s string) string {
	depth := 0
	for i, c := range s {
		switch c {
		case '[':
			depth++
		case ']':
			if depth--; depth == 0 {
				return s[i:]
			}
		}
	}
	return ""
}

// capturesEnd reports whether captured headers may count as a part of the value before them: that isn't used, and a
// quote ends them.
func capturesEnd(all []token, rest string) bool {
	n := len(all)
	if n < 2 || all[n-1] != (token{text: " "}) || all[n-2] != (token{text: "unused", variable: true}) {
		return false
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(rest, " %hs"), " ")
	return strings.HasPrefix(rest, `"`) || strings.HasPrefix(rest, "%{+Q}")
}

// joinApacheTimes joins the times of Apache that stand for one, such as %{%F %T}t.%{msec_frac}t.
func joinApacheTimes(all []token) (joined []token, err error) {
	for i := 0; i < len(all); {
		if !all[i].time {
			joined = append(joined, all[i])
			i++
			continue
		}
		run := []token{all[i]}
		for i++; i+1 < len(all) && all[i+1].time && run[0].continuedBy(all[i], all[i+1]); i += 2 {
			run = append(run, all[i], all[i+1])
		}
		one, err := oneTime(run)
		if err != nil {
			return nil, err
		}
		joined = append(joined, one)
	}
	return joined, nil
}

// continuedBy reports whether a text and the time behind it belong to the same time.
func (t token) continuedBy(text, next token) bool {
	variable, first := t.timeArgument()
	other, second := next.timeArgument()
	switch {
	case text.variable || variable != other || first == "msec" || first == "usec":
		return false
	case second == "msec_frac" || second == "usec_frac":
		return text.text == "." || text.text == ","
	}
	return first != "sec" && second != "sec" && second != "msec" && second != "usec" && !ambiguous.MatchString(text.text)
}

// ambiguous finds what may be a part of a layout of package time, and the end of a time.
var ambiguous = regexp.MustCompile(`[A-SU-Ya-z0-9_"]`)

// timeArgument returns which time of a request it is, and the form.
func (t token) timeArgument() (variable, form string) {
	if form, ok := strings.CutPrefix(t.text, "end:"); ok {
		return "msec", form
	}
	return "start", strings.TrimPrefix(t.text, "begin:")
}

// oneTime returns the variable for a run of times and the texts between them.
func oneTime(run []token) (token, error) {
	variable, form := run[0].timeArgument()
	whole := token{text: variable, variable: true}
	written := ""
	var layout strings.Builder
	for _, t := range run {
		if !t.time {
			layout.WriteString(t.text)
			written += t.text
			continue
		}
		written += "%{" + t.text + "}t"
		_, form := t.timeArgument()
		switch form {
		case "sec", "msec", "usec":
			if len(run) == 1 {
				return whole, nil
			}
		case "msec_frac":
			layout.WriteString("000")
		case "usec_frac":
			layout.WriteString("000000")
		default:
			part, err := fromStrftime(form)
			if err != nil {
				return token{}, err
			}
			layout.WriteString(part)
		}
	}
	if form == "sec" { // with a fraction
		return whole, nil
	}
	whole.layout = layout.String()
	// A layout that lacks a part of the time doesn't give it back.
	at := time.Date(2023, 11, 27, 14, 35, 49, 0, time.UTC)
	if back, err := time.Parse(whole.layout, at.Format(whole.layout)); err != nil || !back.Equal(at) {
		return token{}, fmt.Errorf("log format: %s isn't a whole time: it needs the year, month, day, hour, minute and second, "+
			"and a point before msec_frac: write %%{%%F %%T}t.%%{msec_frac}t or %%{end:msec}t", written)
	}
	return whole, nil
}

// strftimeParts has the layouts of package time for the letters of strftime whose values have a fixed width.
var strftimeParts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'b': "Jan", 'h': "Jan", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'p': "PM",
	'M': "04", 'S': "05",
	'F': "2006-01-02", 'D': "01/02/06", 'R': "15:04", 'T': "15:04:05", 'z': "-0700", 'a': "Mon",
}

// fromStrftime returns the layout of package time for one of strftime.
func fromStrftime(form string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(form); i++ {
		c := form[i]
		if c != '%' {
			if ambiguous.MatchString(string(c)) {
				return "", fmt.Errorf("log format: %%{%s}t is a time that this command doesn't read: log %%{msec}t or %%{end:msec}t", form)
			}
			b.WriteByte(c)
			continue
		}
		if i++; i == len(form) || strftimeParts[form[i]] == "" {
			return "", fmt.Errorf("log format: %%%s in a time isn't read: log %%{msec}t or %%{end:msec}t",
				form[min(i, len(form)):min(i+1, len(form))])
		}
		b.WriteString(strftimeParts[form[i]])
	}
	return b.String(), nil
}
