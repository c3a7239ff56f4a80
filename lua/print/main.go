// Print prints the script that decides in Redis, with the comments that servers don't get.
//
//	go run github.com/stint-go/stint/lua/print@latest
//	go run github.com/stint-go/stint/lua/print@latest tokenbucket fixedwindow
//	go run github.com/stint-go/stint/lua/print@latest concurrency
//	go run github.com/stint-go/stint/lua/print@latest -settle tokenbucket
//
// The first script decides on one token bucket, the second on limits of two algorithms together,
// and the third on slots. The fourth settles earlier charges. docs/internals/scripts.md says how to read
// them. With -bare, the script is printed without comments, as a server gets it.
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
	bare := flag.Bool("bare", false, "without comments, as a server gets it")
	flag.Usage = func() {
		fmt.Fprintf(os.Stderr, "usage: print [-settle] [-bare] [algorithm...]\nalgorithms: %s\n",
			strings.Join(scripts.Names(), ", "))
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
	if len(names) > 1 && !*settle {
		set |= scripts.Several
	}
	name, script := "take", scripts.Take
	if *settle {
		name, script = "settle", scripts.Settle
	}
	if *bare {
		fmt.Print(script(set).Source)
		return
	}
	fmt.Print(scripts.Explained(name, set))
}
