package redistest

import "fmt"

// Migration is a slot on its way from one master to another.
type Migration struct {
	Slot     int
	From, To *Server

	c *Cluster
}

// MigrateSlot moves the slot of a key, with all its keys, to another master,
// and returns when every node knows. Clients learn of it by MOVED.
func (c *Cluster) MigrateSlot(key string) *Migration {
	c.t.Helper()
	m := c.BeginMigration(key)
	m.MoveKeys()
	m.Finish()
	return m
}

// BeginMigration opens the move of a key's slot to another master, and leaves
// it half-way. No key has moved: From answers for those it has, and ASK for
// those it hasn't; a command on some of either gets TRYAGAIN.
func (c *Cluster) BeginMigration(key string) *Migration {
	c.t.Helper()
	m := &Migration{Slot: c.SlotOf(key), From: c.NodeOf(key), c: c}
	for _, s := range c.masters() {
		if s != m.From {
			m.To = s
			break
		}
	}
	if m.To == nil {
		c.t.Fatal("a slot can't move in a cluster of one master")
	}
	m.To.Do("CLUSTER", "SETSLOT", m.Slot, "IMPORTING", c.id(m.From))
	m.From.Do("CLUSTER", "SETSLOT", m.Slot, "MIGRATING", c.id(m.To))
	return m
}

// MoveKeys moves these keys of the slot, with their times to live; without keys, all
// that From still has. From then answers ASK for them.
func (m *Migration) MoveKeys(keys ...string) {
	m.c.t.Helper()
	move := []any{"MIGRATE", "127.0.0.1", m.To.Port(), "", 0, int(patience.Milliseconds())}
	if m.To.p.password != "" {
		move = append(move, "AUTH", m.To.p.password)
	}
	move = append(move, "KEYS")
	if len(keys) > 0 {
		for _, k := range keys {
			move = append(move, k)
		}
		if m.From.Do(move...) != "OK" {
			m.c.t.Fatalf("none of %q is there to be moved", keys)
		}
		return
	}
	for {
		some, _ := m.From.Do("CLUSTER", "GETKEYSINSLOT", m.Slot, 100).([]any)
		if len(some) == 0 {
			return
		}
		// Under load a key may expire in between: NOKEY is no error.
		m.From.Do(append(move[:len(move):len(move)], some...)...)
	}
}

// Finish gives the slot to To, moving what is left, and returns when every node
// knows: from then on From answers MOVED.
func (m *Migration) Finish() {
	m.c.t.Helper()
	m.MoveKeys()
	id := m.c.id(m.To)
	// The importing side first: should it end in between, the slot has an owner.
	m.To.Do("CLUSTER", "SETSLOT", m.Slot, "NODE", id)
	m.From.Do("CLUSTER", "SETSLOT", m.Slot, "NODE", id)
	for _, s := range m.c.masters() {
		if s != m.To && s != m.From {
			s.Do("CLUSTER", "SETSLOT", m.Slot, "NODE", id)
		}
	}
	await(m.c.t, "every node to know who has the slot", func() error {
		for _, s := range m.c.Nodes {
			if !s.p.answers() {
				continue
			}
			owner, err := m.c.owner(s, m.Slot)
			if err != nil {
				return err
			}
			if owner != m.To {
				return fmt.Errorf("%s sends callers of slot %d to %s", s.Addr(), m.Slot, owner.Addr())
			}
		}
		return nil
	})
}

// masters returns the running nodes that are masters now.
func (c *Cluster) masters() []*Server {
	c.t.Helper()
	var masters []*Server
	for _, s := range c.Nodes {
		if s.p.answers() && s.Info("replication", "role") == "master" {
			masters = append(masters, s)
		}
	}
	return masters
}
