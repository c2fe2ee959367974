package server

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// What is known of sessions' models is looked up for every request. So it has a lock of its own, under which nothing waits.

// registered gives a session as its model was registered last, or nil.
func (m *SessionModels) registered(id string) *pb.Session {
	m.table.Lock()
	defer m.table.Unlock()
	return m.known[id]
}

func (m *SessionModels) register(session *pb.Session) {
	m.table.Lock()
	defer m.table.Unlock()
	m.known[session.Id] = session
}

// unregister forgets all that was known of a session.
func (m *SessionModels) unregister(id string) {
	m.table.Lock()
	defer m.table.Unlock()
	delete(m.known, id)
	delete(m.held, id)
	delete(m.asked, id)
}

// unknow forgets whoever has a model of this name.
func (m *SessionModels) unknow(name string) {
	m.table.Lock()
	defer m.table.Unlock()
	maps.DeleteFunc(m.known, func(_ string, s *pb.Session) bool { return s.Vehicle.Name == name })
}

// any is whether there is a session's model at all.
func (m *SessionModels) any() bool {
	m.table.Lock()
	defer m.table.Unlock()
	return len(m.known) > 0
}

// called gives the session whose model is called so, or nil.
func (m *SessionModels) called(name string) *pb.Session {
	m.table.Lock()
	defer m.table.Unlock()
	for _, session := range m.known {
		if sessionapi.SameModel(session.Vehicle.Name, name) {
			return session
		}
	}
	return nil
}

// asksContext notes a request for more context than the session has: it gets what there is, which is said once.
func (m *SessionModels) asksContext(session *pb.Session, tokens int) {
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

// limited says of what clients asked for more than a session has.
func (m *SessionModels) limited(id string) []string {
	m.table.Lock()
	defer m.table.Unlock()
	session, tokens := m.known[id], m.asked[id]
	if session == nil || tokens == 0 {
		return nil
	}
	return []string{fmt.Sprintf("a client asked for a context of %d tokens (num_ctx) and gets the session's %d",
		tokens, session.Vehicle.ContextLength)}
}

// holds is how much memory the shard of a session takes here.
func (m *SessionModels) holds(id string) uint64 {
	m.table.Lock()
	defer m.table.Unlock()
	return m.held[id]
}

// hold declares what the shards hold as overhead to stock's scheduler, where that can't see it: Metal counts a process'
// own allocations only, while CUDA and the system's free memory count everybody's.
func (m *SessionModels) hold(id string, bytes uint64) {
	m.table.Lock()
	defer m.table.Unlock()
	m.held[id] = bytes
	if runtime.GOOS != "darwin" {
		return
	}
	var sum uint64
	for _, held := range m.held {
		sum += held
	}
	m.scheduler.overheadBytes.Store(sum)
}
