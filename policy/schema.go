package policy

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of a policy, which editors
// check a file against while it is written:
//
//	# yaml-language-server: $schema=policy.schema.json
//
// What Parse takes, the schema takes. Parse knows more: names, patterns,
// networks, and numbers that don't go together.
func Schema() []byte { return slices.Clone(schema) }
