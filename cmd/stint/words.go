package main

import (
	"regexp"
	"strings"
	"unicode"
)

// toFileWords replaces package replay's names by the words of a policy file.
func toFileWords(text string) string { return fileWords.Replace(text) }

var fileWords = strings.NewReplacer(
	"which limits a WithLimitFunc adds",
	"the limits of the request's plan, which only the application knows: give --plan NAME",
	"requests don't have a GivenKey", "requests don't have a key: given, which is for jobs",
)

// kebab writes a name of Go's as files do: TokenBucket is token-bucket.
func kebab(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 && unicode.IsLower(rune(name[i-1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// ruleInFile writes "TokenBucket: 10 per 1m0s, burst 20" as "token-bucket: 10 per 1m, burst 20".
func ruleInFile(rule string) string {
	algorithm, numbers, _ := strings.Cut(rule, ":")
	return kebab(algorithm) + ":" + zeros.ReplaceAllString(numbers, "$1")
}

// zeros are the parts of a duration that add nothing.
var zeros = regexp.MustCompile(`\b(\d+h(?:[1-9]\d*m)?|\d+m)(?:0m)?(?:0s)\b`)

// keyInFile writes the source of a key as files do: Header("X-Key") is {header: X-Key}.
func keyInFile(from string) string {
	name, rest, ok := strings.Cut(from, "(")
	arguments, closed := strings.CutSuffix(rest, ")")
	switch all := splitArguments(arguments); {
	case name == "KeyFunc":
		return "a function of the application"
	case !ok || !closed:
		return from
	case len(all) == 0:
		return kebab(name)
	case name == "ForwardedIP":
		return "{forwarded-ip: {trusted: [" + strings.Join(all, ", ") + "]}}"
	case name == "Join" || name == "FirstOf":
		return "{" + kebab(name) + ": [" + strings.Join(all, ", ") + "]}"
	default:
		return "{" + kebab(name) + ": " + strings.Join(all, ", ") + "}"
	}
}

// splitArguments returns the arguments of a key, each as files write it.
func splitArguments(arguments string) (all []string) {
	depth, quoted, from := 0, false, 0
	for i := 0; i <= len(arguments); i++ {
		switch {
		case i == len(arguments) || arguments[i] == ',' && depth == 0 && !quoted:
			if one := strings.TrimSpace(arguments[from:i]); one != "" {
				all = append(all, strings.Trim(keyInFile(one), `"`))
			}
			from = i + 1
		case arguments[i] == '"':
			quoted = !quoted
		case arguments[i] == '(' && !quoted:
			depth++
		case arguments[i] == ')' && !quoted:
			depth--
		}
	}
	return all
}

// toFlagWords replaces package replay's options with the command's flags, and writes durations as
// flags do.
func toFlagWords(text string) string {
	text = optionPattern.ReplaceAllStringFunc(text, func(match string) string {
		m := optionPattern.FindStringSubmatch(match)
		return "--" + kebab(m[1]) + " " + m[2] + ":"
	})
	return millisecondsPattern.ReplaceAllString(text, "use 1ms or more")
}

var (
	optionPattern       = regexp.MustCompile(`With(Window|Top|MaxKeys|Headroom|Horizon)\(([^)]*)\):`)
	millisecondsPattern = regexp.MustCompile(`use \d+\*time\.Millisecond\b`)
)
