package project

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// released is the version that throw-away clones release: no module of theirs is
// taken for one that a proxy has.
const released = "v0.0.1-clone"

// run runs a command in dir, and returns what it prints.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr.String())
	}
	return string(out)
}

// tree are the files here that are committed, or will be.
func tree(t *testing.T, patterns ...string) []string {
	t.Helper()
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("not in a repository")
	}
	list := append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, patterns...)
	files := strings.Split(strings.TrimSuffix(run(t, ".", "git", list...), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || info.IsDir() // deleted, and not yet committed; another repository
	})
}

// throwAway is a repository of its own with the files of this one as they are, or those of
// patterns, committed on main: what is under test is the tree, not the last commit.
func throwAway(t *testing.T, patterns ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range tree(t, patterns...) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), read(t, name), info.Mode())
	}
	run(t, dir, "git", "init", "-q", "-b", "main")
	author(t, dir)
	commit(t, dir)
	return dir
}

func author(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git", "config", "user.name", "a")
	run(t, dir, "git", "config", "user.email", "a@example.com")
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir string) {
	t.Helper()
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "commit", "-q", "--allow-empty", "-m", "all")
}

// own matches a requirement on a module of this repository, but not on v0.0.0, which
// stands in modules that are not released.
var own = regexp.MustCompile(`(?m)^((?:\t|require )` + regexp.QuoteMeta(module) + `\S*) v(?:0\.0\.[1-9]|0\.[1-9]|[1-9]).*`)

// ready makes a throw-away repository that can be released: one more module, which
// users fetch, and all of these at the version.
func ready(t *testing.T, patterns ...string) string {
	t.Helper()
	dir := throwAway(t, patterns...)
	write(t, filepath.Join(dir, "cmd/hello/go.mod"), "module "+module+"/cmd/hello\n\ngo 1.25.0\n\nrequire "+module+" "+released+"\n", 0o666)
	write(t, filepath.Join(dir, "cmd/hello/main.go"), "package main\n\nimport \""+module+"\"\n\nfunc main() { println(stint.TokenBucket.String()) }\n", 0o666)
	for _, name := range strings.Fields(run(t, dir, "git", "ls-files", "*/go.mod")) {
		name = filepath.Join(dir, name)
		write(t, name, own.ReplaceAllString(read(t, name), "$1 "+released), 0o666)
	}
	write(t, filepath.Join(dir, "CHANGELOG.md"), "# Changelog\n\n## "+released+"\n", 0o666)
	commit(t, dir)
	return dir
}

// A dry run prints the tags of all modules, each after those of the modules that it requires, and a
// release makes them.
func TestRelease(t *testing.T) {
	dir := ready(t)
	before := map[string]bool{}
	all := map[string]bool{released: true}
	for _, name := range strings.Fields(run(t, dir, "git", "ls-files", "*/go.mod")) {
		if own.MatchString(read(t, filepath.Join(dir, name))) {
			all[filepath.Dir(name)+"/"+released] = true
		}
	}
	if len(all) < 6 {
		t.Errorf("released are %v", all)
	}

	printed := run(t, dir, "scripts/release", released)
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	var tags []string
	for _, line := range lines[:len(lines)-1] {
		tag, found := strings.CutPrefix(line, "git tag -a -m ")
		tag, again, _ := strings.Cut(tag, " ")
		if !found || tag != again || !all[tag] || before[path.Join(module, path.Dir(tag))] {
			t.Errorf("it would do %s", line)
		}
		for _, required := range own.FindAllStringSubmatch(read(t, filepath.Join(dir, path.Dir(tag), "go.mod")), -1) {
			if name := strings.TrimPrefix(strings.TrimSpace(required[1]), "require "); !before[name] {
				t.Errorf("%s is tagged before %s, which it requires", tag, name)
			}
		}
		before[path.Join(module, path.Dir(tag))] = true
		tags = append(tags, tag)
	}
	if len(tags) != len(all) {
		t.Errorf("it would tag %v, want %v", tags, all)
	}
	if want := "git push --atomic origin main " + strings.Join(tags, " "); lines[len(lines)-1] != want {
		t.Errorf("it ends with %s, want %s", lines[len(lines)-1], want)
	}
	if got := run(t, dir, "git", "tag"); got != "" {
		t.Errorf("a dry run tags %s", got)
	}
	if got := run(t, dir, "scripts/release", "--tag", released); got != printed {
		t.Errorf("it does\n%swant\n%s", got, printed)
	}
	for _, tag := range tags {
		if head := run(t, dir, "git", "rev-parse", "HEAD"); head != run(t, dir, "git", "rev-parse", tag+"^{commit}") {
			t.Errorf("tag %s isn't of the commit", tag)
		}
	}
}

// A change of testdata/api.txt needs a line in CHANGELOG.md.
func TestChangedAPI(t *testing.T) {
	type files map[string]string
	for _, c := range []struct {
		name   string
		branch bool
		change []files // of commits
		fails  bool
	}{
		{"nothing", false, []files{{"a.go": "1"}}, false},
		{"without a line", false, []files{{"testdata/api.txt": "func A()\nfunc B()\n"}}, true},
		{"a name that is gone", false, []files{{"testdata/api.txt": ""}}, true},
		{"with a line", false, []files{{"testdata/api.txt": "func B()\n", "CHANGELOG.md": "# Changelog\n- B\n"}}, false},
		{"with many lines", false, []files{{"testdata/api.txt": "func B()\n", "CHANGELOG.md": strings.Repeat("- B is much better than A\n", 100_000)}}, false},
		{"with fewer lines", false, []files{{"testdata/api.txt": "func B()\n", "CHANGELOG.md": ""}}, true},
		{"in an earlier commit of a branch", true, []files{{"testdata/api.txt": "func B()\n"}, {"a.go": "1"}}, true},
		{"with a line in another commit of a branch", true, []files{{"testdata/api.txt": "func B()\n"}, {"CHANGELOG.md": "# Changelog\n- B\n"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put := func(all files) {
				for name, text := range all {
					write(t, filepath.Join(dir, name), text, 0o666)
				}
			}
			run(t, dir, "git", "init", "-q", "-b", "main")
			author(t, dir)
			put(files{"testdata/api.txt": "func A()\n", "CHANGELOG.md": "# Changelog\n"})
			write(t, filepath.Join(dir, "scripts/changed-api"), read(t, "scripts/changed-api"), 0o777)
			commit(t, dir)
			if c.branch {
				run(t, dir, "git", "switch", "-q", "-c", "b")
			}
			for _, all := range c.change {
				put(all)
				commit(t, dir)
			}
			cmd := exec.Command("scripts/changed-api")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "STINT_BASE=")
			if said, err := cmd.CombinedOutput(); c.fails != (err != nil) || c.fails != strings.Contains(string(said), "add a line to CHANGELOG.md") {
				t.Errorf("%v: %s", err, said)
			}
		})
	}
}

// Before the first release, CHANGELOG.md lists no changes between commits.
func TestChangelogBeforeARelease(t *testing.T) {
	text := read(t, "CHANGELOG.md")
	if !strings.Contains(text, "\n## v") && strings.Contains(text, "\n### Behaviour changes") {
		t.Error("CHANGELOG.md lists behaviour changes, but nothing has been released")
	}
}

func TestReleaseDenies(t *testing.T) {
	hello := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			name := filepath.Join(dir, "cmd/hello/go.mod")
			write(t, name, read(t, name)+text, 0o666)
			commit(t, dir)
		}
	}
	// It reads no other files, and each case has a clone.
	origin := ready(t, "go.mod", "*/go.mod", "CHANGELOG.md", "README.md", "scripts/release")
	for _, c := range []struct {
		name    string
		version string
		change  func(t *testing.T, dir string)
		want    string
	}{
		{"no version", "1.0", func(*testing.T, string) {}, "is not a version"},
		{"a version that needs another path", "v2.0.0", func(*testing.T, string) {}, "is not a version"},
		{"another branch", released, func(t *testing.T, dir string) { run(t, dir, "git", "switch", "-q", "-c", "b") }, "on b: "},
		{"no branch", released, func(t *testing.T, dir string) { run(t, dir, "git", "switch", "-q", "--detach") }, "on no branch: "},
		{"a change", released, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "README.md"), "", 0o666) }, "not committed"},
		{"a new file", released, func(t *testing.T, dir string) { write(t, filepath.Join(dir, "new"), "", 0o666) }, "not committed"},
		{"no section", "v0.0.1", func(*testing.T, string) {}, "no section '## v0.0.1'"},
		{"modules of another release", "v0.0.1", func(*testing.T, string) {},
			"go mod edit -require=" + module + "@v0.0.1 cmd/hello/go.mod"},
		{"a replace", released, hello("replace example.com/a => ./a\n"), "cmd/hello/go.mod has a replace"},
		{"a block of them", released, hello("replace (\n\texample.com/a => ./a\n)\n"), "cmd/hello/go.mod has a replace"},
		{"a module that isn't released", released, hello("require " + module + "/docs/plots v0.0.0\n"), module + "/docs/plots, which is not released"},
		{"a module at another version", released, func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "cmd/other/go.mod"), "module "+module+"/cmd/other\n\nrequire "+module+" "+released+"\n", 0o666)
			hello("require (\n\t"+module+"/cmd/other v0.0.1\n)\n")(t, dir)
		}, "go mod edit -require=" + module + "/cmd/other@" + released + " cmd/hello/go.mod"},
		{"a tag there is", released, func(t *testing.T, dir string) { run(t, dir, "git", "tag", "cmd/hello/"+released) }, "there is a tag cmd/hello/" + released},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run(t, ".", "git", "clone", "-q", origin, dir)
			author(t, dir)
			c.change(t, dir)
			before := run(t, dir, "git", "tag")
			for _, args := range [][]string{{c.version}, {"--tag", c.version}} {
				cmd := exec.Command("scripts/release", args...)
				cmd.Dir = dir
				said, err := cmd.CombinedOutput()
				if err == nil || !strings.Contains(string(said), c.want) {
					t.Errorf("scripts/release %v: %v\n%swant %q", args, err, said, c.want)
				}
			}
			if got := run(t, dir, "git", "tag"); got != before {
				t.Errorf("tags %swere %s", got, before)
			}
		})
	}
}
