package project

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const licencesFile = "docs/licences.md"

const licencesHead = `# Licences

stint has the MIT licence. The packages ` + "`stint`, `adapters/std`, `store`, `store/memstore`, `store/failover`" + `,
` + "`tenants`" + ` and ` + "`console`" + ` import only the standard library. If a program for Linux imports one of the packages in the
last column, the program also contains the module in the first column.

A test fails if a module has a licence other than MIT, BSD-2-Clause, BSD-3-Clause or Apache-2.0. ` + "`make api`" + ` writes this
page.

| module | licence | comes with |
| --- | --- | --- |
`

// The packages and programs that users build.
var (
	withModules    = []string{"store/redisstore", "adapters/gin", "adapters/echo", "adapters/echov5", "adapters/grpc", "policy", "observe/otel", "cmd/stint"}
	withoutModules = []string{".", "adapters/std", "store", "store/memstore", "store/failover", "tenants", "console"}
)

// docs/licences.md lists the modules that packages bring into programs, with their licences: make api
// writes it.
func TestLicences(t *testing.T) {
	workspace, err := filepath.Abs("go.work")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOWORK", workspace)
	t.Setenv("GOOS", "linux")
	t.Setenv("GOARCH", "amd64")
	dependencies := func(packages string) map[string]string {
		dirs := map[string]string{}
		const each = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`
		for line := range strings.Lines(run(t, ".", "go", "list", "-deps", "-f", each, "./"+packages)) {
			name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name != module && !strings.HasPrefix(name, module+"/") && name != "" {
				dirs[name] = dir
			}
		}
		return dirs
	}
	for _, p := range withoutModules {
		if others := dependencies(p); len(others) > 0 {
			t.Errorf("%s imports %v", p, others)
		}
	}
	dirs, users := map[string]string{}, map[string][]string{}
	for _, p := range withModules {
		for name, dir := range dependencies(p) {
			dirs[name] = dir
			users[name] = append(users[name], "`"+p+"`")
		}
	}
	text := licencesHead
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		licence := licenceIn(t, dirs[name])
		if licence == "" {
			t.Errorf("%s: no known licence in %s", name, dirs[name])
		}
		text += fmt.Sprintf("| `%s` | %s | %s |\n", name, licence, strings.Join(users[name], ", "))
	}
	if *updateAPI {
		write(t, licencesFile, text, 0o644)
	}
	if read(t, licencesFile) != text {
		t.Errorf("%s is out of date: make api", licencesFile)
	}
}

// licenceIn returns the name of the licence of a module's directory, or "".
func licenceIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "LICEN[SC]E*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := regexp.MustCompile(`\s+`).ReplaceAllString(string(data), " ")
		for _, l := range []struct{ has, lacks, name string }{
			{"Apache License Version 2.0", "", "Apache-2.0"},
			{"Permission is hereby granted, free of charge", "", "MIT"},
			{"Redistribution and use in source and binary forms", "either the name of", "BSD-2-Clause"},
			{"either the name of", "", "BSD-3-Clause"},
		} {
			if strings.Contains(text, l.has) && (l.lacks == "" || !strings.Contains(text, l.lacks)) && !slices.Contains(names, l.name) {
				names = append(names, l.name)
			}
		}
	}
	return strings.Join(names, ", ")
}
