package redistest

import (
	"strconv"
	"strings"
)

// Do sends one command and returns its reply as RESP2 represents it, or nil. An error
// reply ends the test. It doesn't use a connection of Client.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	v, err := s.p.do(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// Info returns a field of a section of INFO, or "".
func (s *Server) Info(section, name string) string {
	s.t.Helper()
	info, _ := s.Do("INFO", section).(string)
	return field(info, name)
}

// Needs skips the test if the server doesn't know a setting, because it is older.
func (s *Server) Needs(setting string) {
	s.t.Helper()
	if pair, _ := s.Do("CONFIG", "GET", setting).([]any); len(pair) == 0 {
		s.t.Skipf("version %s has no setting %s", s.Info("server", "redis_version"), setting)
	}
}

// CommandStats returns how often a command has run, and how many microseconds the
// server has spent in it, including calls by scripts. Both are 0 for a command that
// never ran; CONFIG RESETSTAT resets them.
func (s *Server) CommandStats(name string) (calls int64, usec float64) {
	s.t.Helper()
	for pair := range strings.SplitSeq(s.Info("commandstats", "cmdstat_"+strings.ToLower(name)), ",") {
		switch k, v, _ := strings.Cut(pair, "="); k {
		case "calls":
			calls = int64(s.number(v))
		case "usec":
			usec = s.number(v)
		}
	}
	return calls, usec
}

// CPU returns the seconds of CPU time of the server's main thread since it was started,
// user and system (Redis 6.2 and newer).
func (s *Server) CPU() float64 {
	s.t.Helper()
	info, _ := s.Do("INFO", "cpu").(string)
	return s.number(field(info, "used_cpu_user_main_thread")) + s.number(field(info, "used_cpu_sys_main_thread"))
}

func (s *Server) number(text string) float64 {
	s.t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.t.Fatalf("a number of INFO: %v", err)
	}
	return n
}

// field finds "name:value" among lines.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
