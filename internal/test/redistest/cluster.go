package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// Cluster is a Redis Cluster whose nodes run on loopback. Its methods are for
// the test's own goroutine.
type Cluster struct {
	// Nodes holds the masters in the order of their slots, followed by their replicas.
	// It keeps this order after a failover.
	Nodes []*Server

	t testing.TB
}

// StartCluster starts a cluster and ends it with the test. It returns when every node
// agrees that all slots are served and all replicas follow. That takes two to three
// seconds, most of it Redis's own: a master reports a cluster as sound only after
// running for two.
//
// With replicas, a node counts as failed after two seconds without an answer; then a
// replica takes over. Without, it takes a minute, so that a busy machine doesn't bring
// the cluster down: a test of that passes --cluster-node-timeout. args are additional
// arguments of each node.
func StartCluster(t testing.TB, masters, replicasPerMaster int, args ...string) *Cluster {
	t.Helper()
	timeout := "2000"
	if replicasPerMaster == 0 {
		timeout = fmt.Sprint(patience.Milliseconds())
	}
	args = slices.Concat([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", timeout,
		// A replica that was cut off for a while may still be promoted: on a
		// busy machine, it is cut off now and then.
		"--cluster-replica-validity-factor", "0",
	}, args)
	c := &Cluster{t: t, Nodes: startAll(t, binary(t), masters*(1+replicasPerMaster), "", args)}
	ids := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		ids[i] = c.id(s)
		// Distinct from the start: masters that find themselves with one epoch
		// settle it by raising it, a while later.
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for i, s := range c.Nodes[:masters] {
		add := []any{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE is of Redis 7
		for slot := i * slots / masters; slot < (i+1)*slots/masters; slot++ {
			add = append(add, slot)
		}
		s.Do(add...)
	}
	// Every pair is introduced. Gossip would do it as well, later.
	for i, s := range c.Nodes {
		for _, o := range c.Nodes[i+1:] {
			s.Do("CLUSTER", "MEET", "127.0.0.1", o.Port())
		}
	}
	for i, s := range c.Nodes[masters:] {
		await(t, "a node to know its master", func() error {
			_, err := s.p.do("CLUSTER", "REPLICATE", ids[i%masters])
			return err
		})
	}
	c.AwaitOK()
	return c
}

// AwaitOK returns when every running node reports a sound cluster and knows as many
// nodes and masters as the others do, and replicas follow theirs. Call it after a
// failover or a restart. It never returns for a cluster that has lost slots.
func (c *Cluster) AwaitOK() {
	c.t.Helper()
	await(c.t, "the cluster to be sound", func() error {
		view := ""
		for _, s := range c.Nodes {
			if !s.p.answers() {
				continue
			}
			v, err := sound(s)
			if err != nil {
				return err
			}
			if view != "" && v != view {
				return fmt.Errorf("%s sees %s, another node %s", s.Addr(), v, view)
			}
			view = v
		}
		return nil
	})
}

// sound returns a node's view of the cluster, as text that can be compared, or why it
// isn't sound.
func sound(s *Server) (view string, err error) {
	info, err := s.text("CLUSTER", "INFO")
	if err != nil {
		return "", err
	}
	if state := field(info, "cluster_state"); state != "ok" {
		return "", fmt.Errorf("%s: cluster_state:%s", s.Addr(), state)
	}
	if n := field(info, "cluster_slots_ok"); n != strconv.Itoa(slots) {
		return "", fmt.Errorf("%s: %s slots", s.Addr(), n)
	}
	nodes, err := s.text("CLUSTER", "NODES")
	if err != nil {
		return "", err
	}
	var lines []string
	for line := range strings.Lines(nodes) {
		// id, address, flags, master, ping, pong, epoch, link, slots
		f := strings.Fields(line)
		if strings.Contains(f[2], "handshake") {
			return "", fmt.Errorf("%s: still greeting %s", s.Addr(), f[1])
		}
		role := "master"
		if strings.Contains(f[2], "slave") {
			role = "replica of " + f[3]
		}
		lines = append(lines, fmt.Sprintln(f[0], role, f[8:]))
	}
	slices.Sort(lines)
	replication, err := s.text("INFO", "replication")
	if err != nil {
		return "", err
	}
	if field(replication, "role") == "slave" && field(replication, "master_link_status") != "up" {
		return "", fmt.Errorf("%s: doesn't follow its master yet", s.Addr())
	}
	return strings.Join(lines, ""), nil
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Client returns a new client of the cluster and closes it when the test ends. Its
// options are go-redis's defaults, changed by opts, except that its own timeouts are a
// minute, as those of [Server.Client]. With those defaults a master that is dead or hangs
// is asked for up to a minute after its replica has taken over: a network error doesn't
// make go-redis (v9.22) look for another. ReloadState, or a short
// ClusterStateReloadInterval, does.
func (c *Cluster) Client(opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: c.Addrs(), Password: c.Nodes[0].p.password, DialTimeout: patience,
		ReadTimeout: patience, WriteTimeout: patience}
	for _, opt := range opts {
		opt(o)
	}
	client := redis.NewClusterClient(o)
	c.t.Cleanup(func() { client.Close() })
	return client
}

// SlotOf returns the slot of a key.
func (c *Cluster) SlotOf(key string) int {
	c.t.Helper()
	n, _ := c.running().Do("CLUSTER", "KEYSLOT", key).(int64)
	return int(n)
}

// NodeOf returns the master that serves a key's slot, according to the first running
// node. Right after a failure, that is still the failed node.
func (c *Cluster) NodeOf(key string) *Server {
	c.t.Helper()
	owner, err := c.owner(c.running(), c.SlotOf(key))
	if err != nil {
		c.t.Fatal(err)
	}
	return owner
}

// owner returns the master of a slot according to s.
func (c *Cluster) owner(s *Server, slot int) (*Server, error) {
	v, err := s.p.do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	ranges, _ := v.([]any)
	for _, r := range ranges {
		r := r.([]any) // first, last, [host, port, id, ...] of the master, of replicas
		if first, last := int(r[0].(int64)), int(r[1].(int64)); slot < first || slot > last {
			continue
		}
		port := fmt.Sprint(r[2].([]any)[1])
		for _, o := range c.Nodes {
			if o.Port() == port {
				return o, nil
			}
		}
	}
	return nil, fmt.Errorf("%s knows nobody who serves slot %d", s.Addr(), slot)
}

// running returns a node that can be asked.
func (c *Cluster) running() *Server {
	c.t.Helper()
	for _, s := range c.Nodes {
		if s.p.answers() {
			return s
		}
	}
	c.t.Fatal("no node of the cluster runs")
	return nil
}

func (c *Cluster) id(s *Server) string {
	c.t.Helper()
	id, _ := s.Do("CLUSTER", "MYID").(string)
	return id
}
