package redistest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is the master's name at the sentinels of [StartSentinel].
const MasterName = "stint"

// sentinels is enough for a majority with one of them gone.
const sentinels = 3

// Sentinel is a master with replicas, watched by three sentinels, all on
// loopback. Its methods are for the test's own goroutine.
type Sentinel struct {
	// Nodes holds the first master, followed by the first replicas. It keeps this order
	// after a failover.
	Nodes     []*Server
	Sentinels []*Server

	t testing.TB
}

// StartSentinel starts a master, replicas that follow it, and three sentinels,
// and ends them with the test. It returns when every sentinel knows all the
// others, which takes about a second.
//
// A master counts as down after 1.5 s without an answer. args are further
// arguments of the master and its replicas.
func StartSentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	if replicas < 1 {
		t.Fatal("sentinels need a replica to promote")
	}
	master := Start(t, args...)
	s := &Sentinel{t: t, Nodes: []*Server{master}}
	s.Nodes = append(s.Nodes, startAll(t, binary(t), replicas, "", append([]string{
		"--replicaof", "127.0.0.1", master.Port(), "--masterauth", master.p.password,
	}, args...))...)
	// An old sentinel looks for replicas at once and then every ten seconds,
	// so they have to be there when it starts.
	await(t, "the replicas to follow", func() error {
		for _, r := range s.Nodes[1:] {
			if info, err := r.text("INFO", "replication"); err != nil {
				return err
			} else if status := field(info, "master_link_status"); status != "up" {
				return fmt.Errorf("%s: link %s", r.Addr(), status)
			}
		}
		return nil
	})
	// A sentinel pings once a second or once in the time after which it calls
	// a master down, whichever is shorter, and starts with a pause. Below a
	// second it therefore calls each new master down at once, and masters
	// follow one another for ever.
	conf := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]s 2
sentinel down-after-milliseconds %[1]s 1500
sentinel failover-timeout %[1]s 3000
`, MasterName, master.Port())
	if master.p.password != "" {
		conf += fmt.Sprintf("sentinel auth-pass %s %s\n", MasterName, master.p.password)
	}
	s.Sentinels = startAll(t, binary(t), sentinels, conf, nil)
	for _, n := range s.Sentinels {
		// Seconds become tenths where the server can (Redis 7); all works
		// without, more slowly. After a hiccup of the machine a sentinel would
		// do nothing for 30 s.
		_, _ = n.p.do("SENTINEL", "DEBUG", "PING-PERIOD", 200, "INFO-PERIOD", 500,
			"ASK-PERIOD", 200, "PUBLISH-PERIOD", 200, "TILT-PERIOD", 1000)
	}
	s.AwaitOK()
	return s
}

// AwaitOK returns when all running sentinels agree on a master that is up, and know
// each other and the same replicas, all of them up. Call it after restarting what was
// killed.
func (s *Sentinel) AwaitOK() {
	s.t.Helper()
	await(s.t, "the sentinels to agree", func() error {
		for _, n := range s.running() {
			state, err := n.sentinelMaster()
			if err != nil {
				return err
			}
			if state["flags"] != "master" || state["num-other-sentinels"] != fmt.Sprint(sentinels-1) ||
				state["num-slaves"] != fmt.Sprint(len(s.Nodes)-1) {
				return fmt.Errorf("%s: flags %s, %s replicas, %s other sentinels",
					n.Addr(), state["flags"], state["num-slaves"], state["num-other-sentinels"])
			}
			if err := n.replicasFollow(); err != nil {
				return err
			}
		}
		_, err := s.master()
		return err
	})
}

// Client returns a new client of the current master and closes it when the test ends.
// Its options are go-redis's defaults, changed by opts, except that its own timeouts are
// a minute, as those of [Server.Client].
func (s *Sentinel) Client(opts ...func(*redis.FailoverOptions)) *redis.Client {
	o := &redis.FailoverOptions{MasterName: MasterName, Password: s.Nodes[0].p.password, DialTimeout: patience,
		ReadTimeout: patience, WriteTimeout: patience}
	for _, n := range s.Sentinels {
		o.SentinelAddrs = append(o.SentinelAddrs, n.Addr())
	}
	for _, opt := range opts {
		opt(o)
	}
	c := redis.NewFailoverClient(o)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Master returns the node that the running sentinels call master. They may disagree for
// a moment: then it waits.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	var m *Server
	await(s.t, "the sentinels to agree on a master", func() (err error) {
		m, err = s.master()
		return err
	})
	return m
}

// Failover kills the master, waits until the sentinels have promoted a replica,
// about two to four seconds, and returns it. The old master stays dead;
// restarted, it becomes a replica.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	old := s.Master()
	old.Kill()
	return s.awaitPromotion(old)
}

// Switch makes the sentinels promote a replica while the master is alive, and returns
// the new master. The old one becomes a replica and answers READONLY to clients that
// still talk to it.
func (s *Sentinel) Switch() *Server {
	s.t.Helper()
	old := s.Master()
	await(s.t, "a sentinel to start a failover", func() error {
		// Denied while the last one isn't over, or no replica looks healthy.
		_, err := s.running()[0].p.do("SENTINEL", "FAILOVER", MasterName)
		return err
	})
	m := s.awaitPromotion(old)
	await(s.t, "the old master to become a replica", func() error {
		info, err := old.text("INFO", "replication")
		if err == nil && field(info, "role") != "slave" {
			err = fmt.Errorf("%s is still a master", old.Addr())
		}
		return err
	})
	return m
}

// awaitPromotion returns the master that has taken over from old.
func (s *Sentinel) awaitPromotion(old *Server) *Server {
	s.t.Helper()
	var m *Server
	await(s.t, "the promotion of a replica", func() (err error) {
		if m, err = s.master(); err == nil && m == old {
			err = errors.New("the master is who it was")
		}
		return err
	})
	return m
}

// master returns the node that all running sentinels name, if it knows that it is the
// master.
func (s *Sentinel) master() (*Server, error) {
	port := ""
	for _, n := range s.running() {
		v, err := n.p.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if err != nil {
			return nil, err
		}
		addr, _ := v.([]any) // host, port
		if len(addr) != 2 {
			return nil, fmt.Errorf("%s knows no master", n.Addr())
		}
		if p, _ := addr[1].(string); port == "" {
			port = p
		} else if p != port {
			return nil, fmt.Errorf("sentinels name %s and %s", port, p)
		}
	}
	for _, n := range s.Nodes {
		if n.Port() != port || !n.p.answers() {
			continue
		}
		info, err := n.text("INFO", "replication")
		if err == nil && field(info, "role") != "master" {
			err = fmt.Errorf("%s doesn't know that it is the master", n.Addr())
		}
		return n, err
	}
	return nil, fmt.Errorf("the master at port %s doesn't run", port)
}

// running returns the sentinels that can be asked.
func (s *Sentinel) running() []*Server {
	s.t.Helper()
	var some []*Server
	for _, n := range s.Sentinels {
		if n.p.answers() {
			some = append(some, n)
		}
	}
	if len(some) == 0 {
		s.t.Fatal("no sentinel runs")
	}
	return some
}

// sentinelMaster returns a sentinel's view of the master, by field.
func (s *Server) sentinelMaster() (map[string]string, error) {
	v, err := s.p.do("SENTINEL", "MASTER", MasterName)
	return pairs(v), err
}

// replicasFollow returns an error for a replica that a sentinel wouldn't promote.
func (s *Server) replicasFollow() error {
	v, err := s.p.do("SENTINEL", "REPLICAS", MasterName)
	if err != nil {
		return err
	}
	all, _ := v.([]any)
	for _, r := range all {
		if r := pairs(r); r["flags"] != "slave" || r["master-link-status"] != "ok" {
			return fmt.Errorf("%s: replica %s: flags %s, link %s", s.Addr(), r["name"], r["flags"], r["master-link-status"])
		}
	}
	return nil
}

// pairs turns a flat reply of names and values into a map.
func pairs(reply any) map[string]string {
	flat, _ := reply.([]any)
	m := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		m[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	return m
}
