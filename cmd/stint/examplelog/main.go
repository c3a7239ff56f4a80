// Command examplelog writes the access log of a made-up day, which package day describes, to
// try stint plan on:
//
//	go run github.com/stint-go/stint/cmd/stint/examplelog@latest > access.json
package main

import (
	"fmt"
	"os"

	"github.com/stint-go/stint/cmd/stint/internal/day"
)

func main() {
	if err := day.Write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "examplelog:", err)
		os.Exit(1)
	}
}
