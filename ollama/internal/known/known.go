// Package known is what a server knows of the models of its sessions, which is looked up for every request: so it has locks
// of its own, under which nothing waits. It imports sessionapi and pb.
package known

import (
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// Models has each session's model, as soon as that can be asked.
type Models struct {
	Comeback *Comeback

	table sync.Mutex             // for a moment, whatever the store does
	known map[string]*pb.Session // session id → as it was registered last
	held  map[string]uint64      // session id → bytes that its shard holds here
	asked map[string]int         // session id → the largest context that was asked for, above what the session has
}

// New knows none yet, and not whether any come back.
func New() *Models {
	return &Models{Comeback: newComeback(), known: map[string]*pb.Session{}, held: map[string]uint64{}, asked: map[string]int{}}
}

// Registered gives a session as its model was registered last, or nil.
func (m *Models) Registered(id string) *pb.Session {
	m.table.Lock()
	defer m.table.Unlock()
	return m.known[id]
}

func (m *Models) Register(session *pb.Session) {
	m.table.Lock()
	defer m.table.Unlock()
	m.known[session.Id] = session
}

// Unregister forgets all that was known of a session.
func (m *Models) Unregister(id string) {
	m.table.Lock()
	defer m.table.Unlock()
	delete(m.known, id)
	delete(m.held, id)
	delete(m.asked, id)
}

// Unknow forgets whoever has a model of this name.
func (m *Models) Unknow(name string) {
	m.table.Lock()
	defer m.table.Unlock()
	maps.DeleteFunc(m.known, func(_ string, s *pb.Session) bool { return s.Vehicle.Name == name })
}

// Any is whether there is a session's model at all.
func (m *Models) Any() bool {
	m.table.Lock()
	defer m.table.Unlock()
	return len(m.known) > 0
}

// Called gives the session whose model is called so, or nil.
func (m *Models) Called(name string) *pb.Session {
	m.table.Lock()
	defer m.table.Unlock()
	for _, session := range m.known {
		if sessionapi.SameModel(session.Vehicle.Name, name) {
			return session
		}
	}
	return nil
}

// AsksContext notes a request for more context than the session has: it gets what there is, which is said once.
func (m *Models) AsksContext(session *pb.Session, tokens int) {
	m.table.Lock()
	defer m.table.Unlock()
	has := int(session.Vehicle.ContextLength)
	if tokens <= has || tokens <= m.asked[session.Id] {
		return
	}
	if m.asked[session.Id] == 0 {
		slog.Warn("num_ctx_above_the_sessions_context", "session", session.Id, "asked", tokens, "has", has)
	}
	m.asked[session.Id] = tokens
}

// Limited says of what clients asked for more than a session has.
func (m *Models) Limited(id string) []string {
	m.table.Lock()
	defer m.table.Unlock()
	session, tokens := m.known[id], m.asked[id]
	if session == nil || tokens == 0 {
		return nil
	}
	return []string{fmt.Sprintf("a client asked for a context of %d tokens (num_ctx) and gets the session's %d",
		tokens, session.Vehicle.ContextLength)}
}

// Holds is how much memory the shard of a session takes here.
func (m *Models) Holds(id string) uint64 {
	m.table.Lock()
	defer m.table.Unlock()
	return m.held[id]
}

// Hold notes how much memory the shard of a session takes here, and gives what all of them take.
func (m *Models) Hold(id string, bytes uint64) (sum uint64) {
	m.table.Lock()
	defer m.table.Unlock()
	m.held[id] = bytes
	for _, held := range m.held {
		sum += held
	}
	return sum
}
