// Print prints the script that decides in Redis, as a server gets it.
//
//	go run github.com/stint-go/stint/lua/print@latest
//	go run github.com/stint-go/stint/lua/print@latest tokenbucket fixedwindow
//	go run github.com/stint-go/stint/lua/print@latest -settle tokenbucket
//
// The first is that of decisions on one token bucket, which docs/scripts.md goes through. The
// second decides on limits of two algorithms together. The third settles earlier charges.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/stint-go/stint/internal/scripts"
)

func main() {
	settle := flag.Bool("settle", false, "the script that settles earlier charges")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: print [-settle] [algorithm...]\nalgorithms: %s\n", strings.Join(scripts.Names(), ", "))
		flag.PrintDefaults()
	}
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = []string{"tokenbucket"}
	}
	var set scripts.Set
	for _, name := range names {
		a := scripts.Named(name)
		if a == 0 {
			fmt.Fprintf(os.Stderr, "print: no algorithm %q\n", name)
			flag.Usage()
			os.Exit(2)
		}
		set |= a
	}
	script := scripts.Take(set)
	switch {
	case *settle:
		script = scripts.Settle(set)
	case len(names) > 1:
		script = scripts.Take(set | scripts.Several)
	}
	fmt.Print(script.Source)
}
