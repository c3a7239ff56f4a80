package main

import (
	"net/http"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/cmd/stint/internal/replay"
	"github.com/stint-go/stint/internal/keys"
	"github.com/stint-go/stint/policy"
)

// predicateReads returns what the entries of skip and then of block look at, in a policy file that has no
// mistake. An entry that it can't read stands for a function of the application.
func (f functions) predicateReads(data []byte) (all []keys.Reads) {
	var file struct {
		Keys        yaml.Node
		Skip, Block []yaml.Node
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil
	}
	for _, entry := range append(file.Skip, file.Block...) {
		all = append(all, f.entryReads(&file.Keys, &entry))
	}
	return all
}

// entryReads returns what an entry of skip or block looks at. named are the keys of the file.
func (f functions) entryReads(named, entry *yaml.Node) keys.Reads {
	if entry.Value == "preflight" {
		return keys.Reads{Method: http.MethodOptions, Fields: []string{"Origin", "Access-Control-Request-Method"}}
	}
	function := keys.Reads{Function: true}
	var address struct{ Key yaml.Node }
	if entry.Kind != yaml.MappingNode || entry.Decode(&address) != nil {
		return function
	}
	if address.Key.IsZero() {
		return keys.Reads{Peer: true}
	}
	options, err := f.options()
	if err != nil {
		return function
	}
	file := map[string]any{"version": 1, "key": &address.Key,
		"limits": []any{map[string]any{"name": "any", "rate": "1/1s"}}}
	if !named.IsZero() {
		file["keys"] = named
	}
	data, err := yaml.Marshal(file)
	if err != nil {
		return function
	}
	p, err := policy.Parse("", data, options...)
	if err != nil {
		return function
	}
	l, err := stint.New(p.Options()...)
	if err != nil {
		return function
	}
	return replay.KeyReads(l)
}
