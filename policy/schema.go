package policy

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of a policy. Editors use it to check a
// file while it is written:
//
//	# yaml-language-server: $schema=policy.schema.json
//
// The schema accepts every file that Parse accepts. In addition, Parse checks names, patterns,
// networks, and combinations of numbers.
func Schema() []byte { return slices.Clone(schema) }
