package stintotel

import "runtime/debug"

// version returns the version of this module in the program, or "" if it was built without one,
// as in a workspace.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return versionIn(info)
	}
	return ""
}

func versionIn(info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != Scope {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "(devel)" {
			return ""
		}
		return m.Version
	}
	return ""
}
