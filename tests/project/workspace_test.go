package project

import (
	"encoding/json"
	"path"
	"testing"
)

// moduleFile is the JSON that go mod edit and go work edit print of a file.
type moduleFile struct {
	Module  struct{ Path string }
	Use     []struct{ DiskPath string }
	Require []struct{ Path, Version string }
	Replace []struct {
		Old struct{ Path, Version string }
		New struct{ Path string }
	}
}

func parsed(t *testing.T, command, file string) (f moduleFile) {
	t.Helper()
	if err := json.Unmarshal([]byte(run(t, ".", "go", command, "edit", "-json", file)), &f); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return f
}

// The modules here are built from this repository, released or not, and no go.mod says
// so.
func TestWorkspace(t *testing.T) {
	work := parsed(t, "work", "go.work")
	used, replaced := map[string]bool{}, map[string]string{}
	for _, u := range work.Use {
		used[path.Clean(u.DiskPath)] = true
	}
	for _, r := range work.Replace {
		replaced[r.Old.Path+"@"+r.Old.Version] = path.Clean(r.New.Path)
	}
	files := tree(t, "go.mod", "*/go.mod")
	if len(files) < 2 {
		t.Fatalf("the modules are %q", files)
	}
	for _, file := range files {
		dir, mod := path.Dir(file), parsed(t, "mod", file)
		if !used[dir] {
			t.Errorf("go work use ./%s", dir)
		}
		if want := path.Join(module, dir); mod.Module.Path != want {
			t.Errorf("%s is of %s, want %s", file, mod.Module.Path, want)
		}
		for _, r := range mod.Replace {
			t.Errorf("go mod edit -dropreplace=%s %s", r.Old.Path, file)
		}
		for _, r := range mod.Require {
			below, ours := relative(r.Path)
			if ours && replaced[r.Path+"@"+r.Version] != below {
				t.Errorf("%s: go work edit -replace=%s@%s=./%s", file, r.Path, r.Version, below)
			}
		}
	}
}
