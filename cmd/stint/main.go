// Command stint checks policy files, explains them, and plans limits: it replays an access log and
// reports the keys that they would have denied. From a log it also suggests limits. It decides requests
// by policy files, for proxies and for services in other languages. And it reads, resets and bans keys of a running
// system.
//
//	go run github.com/stint-go/stint/cmd/stint@latest check policy.yaml
//	go run github.com/stint-go/stint/cmd/stint@latest suggest --key remote-ip --out policy.yaml access.log
//	go run github.com/stint-go/stint/cmd/stint@latest plan --policy policy.yaml access.log
//	go run github.com/stint-go/stint/cmd/stint@latest serve --forward-auth nginx policy.yaml
//	go run github.com/stint-go/stint/cmd/stint@latest usage --policy policy.yaml --redis redis://10.0.0.7:6379 tenant-7
//
// It exits with 0; with 1 if a file has a mistake, a gate isn't passed or nothing can be suggested;
// and with 2 on any other error.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// errFailed is the error of a command that has reported its mistakes: the exit code is 1.
var errFailed = errors.New("failed")

// ownErrors finds what errors of package stint begin with: the command writes it once.
var ownErrors = regexp.MustCompile(`(?m)^stint: `)

// run runs a command, and returns the exit code.
func run(args []string, in io.Reader, out, errs io.Writer) int {
	root := &cobra.Command{
		Use:           "stint",
		Short:         "Check policy files, plan limits with access logs, serve limits to proxies, and read and change keys of a running system",
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRunE: checkValues,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	written := &output{Writer: out}
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(written)
	root.SetErr(errs)
	root.AddCommand(checkCommand(), schemaCommand(), explainCommand(), planCommand(), suggestCommand(), serveCommand(),
		usageCommand(), resetCommand(), banCommand())
	err := root.Execute()
	if written.err != nil {
		err = written.err
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return 1
	default:
		fmt.Fprintln(errs, "stint:", escape(toFlagWords(ownErrors.ReplaceAllString(err.Error(), ""))))
		return 2
	}
}

// checkValues returns an error if a flag is given an empty value, for instance by a script whose variable is unset. With
// an empty --max-denied everything would pass, and with an empty --redis a server would count in memory. A flag whose
// default isn't empty may be given an empty value.
func checkValues(c *cobra.Command, _ []string) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if err == nil && (value == "" || value == "[]") && value == f.DefValue {
			err = fmt.Errorf("--%s is empty: give it a value, or leave it out", f.Name)
		}
	})
	return err
}

// output is the standard output. It remembers the first error, so that a command whose output is lost doesn't exit
// with 0.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// escape returns a text whose control characters are escaped, since log lines and files may
// contain control sequences. New lines stay.
func escape(s string) string {
	var b []rune
	for _, r := range s {
		if r == '\n' || r >= ' ' && r != 0x7f && !(r >= 0x80 && r < 0xa0) && r != 0xfffd && !bidi(r) {
			b = append(b, r)
			continue
		}
		b = append(b, []rune(fmt.Sprintf("\\u%04x", r))...)
	}
	return string(b)
}

// bidi reports whether a character changes the direction of text.
func bidi(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c
}
