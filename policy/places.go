package policy

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// places are the names in the file system that a path depends on: each directory and
// symbolic link on the way, and the final target, or the first name that is missing. The
// path means something else only after one of these has changed. All are absolute and
// contain no links themselves.
type places []string

// maxLinks is more links than any path has, unless they form a loop.
const maxLinks = 40

// placesOf follows a path as the system does. If it can't, the places are those where that
// may change. In a Kubernetes volume it leads through
// policy.yaml, a link to ..data/policy.yaml; ..data, a link to ..2026_01_02; and that
// directory's policy.yaml.
func placesOf(path string) (places, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	volume := filepath.VolumeName(absolute) + string(filepath.Separator)
	var found places
	at := volume
	todo := components(absolute[len(volume):])
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		found = append(found, next)
		info, err := os.Lstat(next)
		if errors.Is(err, os.ErrNotExist) {
			return found, nil // the place where it would appear
		}
		if err != nil {
			return found, err // such as a file in place of a directory
		}
		if info.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return found, errors.New("too many symbolic links")
		}
		target, err := os.Readlink(next)
		if err != nil {
			return found, err
		}
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + string(filepath.Separator)
			target = target[len(at):]
		}
		todo = append(components(target), todo...)
	}
	return found, nil
}

// components keeps ".." in its place: after a link it doesn't refer to the previous
// name.
func components(path string) []string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	return slices.DeleteFunc(parts, func(p string) bool { return p == "" || p == "." })
}

func (p places) have(name string) bool { return slices.Contains(p, name) }

// directories returns the directories that contain the places.
func (p places) directories() []string {
	var all []string
	for _, name := range p {
		if dir := filepath.Dir(name); !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return all
}
