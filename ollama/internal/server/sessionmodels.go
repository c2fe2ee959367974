package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ollama/ollama/api"

	"kafila/ollama/internal/known"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// SessionModels keeps one stub model in the store for each session that is ready, by following every session that the
// sidecar is in.
type SessionModels struct {
	ctx       context.Context // of the server: followers end with it
	sidecar   pb.SidecarClient
	store     *store
	scheduler *Scheduler

	followers sync.Mutex
	following map[string]bool // session ids that are watched → whether to watch once more afterwards

	mu sync.Mutex // one change of the store at a time

	Known *known.Models
}

// NewSessionModels has nothing to look after yet. ctx is the server's: followers end with it. The models that it writes
// are sealed by key, and name owner, see stub.Owner.
func NewSessionModels(
	ctx context.Context, sidecar pb.SidecarClient, ollama *api.Client, scheduler *Scheduler, key seal.Key, owner string,
) *SessionModels {
	return &SessionModels{
		ctx: ctx, sidecar: sidecar, store: &store{client: ollama, scheduler: scheduler, key: key, owner: owner}, scheduler: scheduler,
		following: map[string]bool{}, Known: known.New(),
	}
}

// reconcile makes the store agree with a sidecar that has just started: it removes the stub models of sessions that are
// no more, and follows the sessions that there are.
func (m *SessionModels) reconcile() {
	if err := m.store.awaitServer(m.ctx); err != nil {
		slog.Warn("session_models_not_reconciled", "error", err)
		return
	}
	list, err := m.sidecar.ListSessions(m.ctx, &pb.ListSessionsRequest{})
	if err != nil {
		slog.Warn("session_models_not_reconciled", "error", err)
		return
	}
	var live []string
	for _, session := range list.Sessions {
		if session.State != sessionapi.Closed {
			live = append(live, session.GetVehicle().GetName())
		}
	}
	m.removeStale(live)
	m.Known.Comeback.Expect(m.notAsked(list.Sessions))
	for _, session := range list.Sessions {
		m.follow(session.Id)
	}
}

// notAsked gives those whose model can't be asked here yet.
func (m *SessionModels) notAsked(sessions []*pb.Session) []*pb.Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(sessions), func(s *pb.Session) bool {
		return s.State == sessionapi.Closed || m.Known.Registered(s.Id) != nil
	})
}

func (m *SessionModels) removeStale(live []string) {
	names, err := m.store.registered(m.ctx)
	if err != nil {
		slog.Warn("session_models_not_reconciled", "error", err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if slices.Contains(live, name) || m.store.isOfLivingServer(m.ctx, name) {
			continue
		}
		m.Known.Unknow(name)
		if err := m.store.remove(m.ctx, name); err != nil {
			slog.Warn("stale_session_model_not_removed", "name", name, "error", err)
		}
	}
}

// follow watches a session until it closes or the sidecar is gone. One that is watched already is watched once more
// after that, since it may be a session that was left and joined again.
func (m *SessionModels) follow(id string) {
	m.followers.Lock()
	defer m.followers.Unlock()
	if _, already := m.following[id]; already {
		m.following[id] = true
		return
	}
	m.following[id] = false
	go func() {
		for again := true; again; again = m.watchAgain(id) {
			m.watch(id)
		}
	}()
}

func (m *SessionModels) watchAgain(id string) bool {
	m.followers.Lock()
	defer m.followers.Unlock()
	again := m.following[id]
	m.following[id] = false
	if !again {
		delete(m.following, id)
	}
	return again
}

// watch takes a session's model away when the sidecar says that there is no such session any more, and leaves it when
// the sidecar is gone: what asks for it is then told so.
func (m *SessionModels) watch(id string) {
	err := m.changes(id)
	switch {
	case err == nil, errors.Is(err, io.EOF), status.Code(err) == codes.NotFound:
		m.forget(id)
	case m.ctx.Err() == nil:
		slog.Warn("session_not_followed", "session", id, "error", err)
	}
}

// changes acts on each change of a session until it is closed.
func (m *SessionModels) changes(id string) error {
	stream, err := m.sidecar.WatchSession(m.ctx, &pb.SessionRequest{Session: id})
	if err != nil {
		return err
	}
	for {
		session, err := stream.Recv()
		if err != nil {
			return err
		}
		switch session.State {
		case sessionapi.Closed:
			return nil
		case sessionapi.Sleeping:
			if session.Vehicle == nil {
				continue // it was never planned
			}
			fallthrough // what is asked meanwhile waits in the sidecar
		case sessionapi.Ready:
			if err := m.ensure(m.ctx, session); err != nil {
				slog.Error("session_model_not_registered", "session", id, "error", err)
			}
		}
		m.hold(id, session.ReservedMemoryBytes)
	}
}

// ensure returns when the model of a session that is ready can be asked, registering and loading it where needed.
func (m *SessionModels) ensure(ctx context.Context, session *pb.Session) error {
	if name := session.GetVehicle().GetName(); !strings.HasPrefix(name, sessionapi.ModelPrefix) || !sessionapi.IsModel(name) {
		return fmt.Errorf("the session's model can't be registered as %q: only names below %s are ours", name, sessionapi.ModelPrefix)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.nameIsFreeLocked(session); err != nil {
		return err
	}
	old := m.Known.Registered(session.Id)
	if old != nil && old.Concurrency == session.Concurrency && proto.Equal(old.Vehicle, session.Vehicle) {
		names, err := m.store.registered(ctx)
		if err != nil {
			return err
		}
		if slices.Contains(names, session.Vehicle.Name) {
			m.Known.Register(session) // its ring may be another one
			m.Known.Comeback.Over(session.Id)
			return m.settle(ctx, session)
		} // else somebody has removed the model, not the session
	}
	if old != nil {
		if err := m.store.unload(ctx, old.Vehicle.Name); err != nil {
			return err
		}
	}
	if err := m.store.register(ctx, session); err != nil {
		return err
	}
	if err := m.store.load(ctx, session.Vehicle.Name, session.Concurrency); err != nil {
		return err
	}
	m.Known.Register(session)
	m.Known.Comeback.Over(session.Id)
	slog.Info("session_model_loaded", "session", session.Id, "name", session.Vehicle.Name, "slots", session.Concurrency)
	return nil
}

// nameIsFreeLocked keeps one session from taking what is asked of another: whoever opens a session chooses its id, and so
// how the name of its model ends.
func (m *SessionModels) nameIsFreeLocked(session *pb.Session) error {
	if other := m.Known.Called(session.Vehicle.Name); other != nil && other.Id != session.Id {
		return fmt.Errorf("another session here has a model called %s: leave that one first (%s), or this one",
			session.Vehicle.Name, sessionapi.Title(other))
	}
	return nil
}

// settle loads the stub model anew where stock has unloaded it, or has loaded it in its own way: a request with a
// keep_alive or num_ctx of its own makes it do so, with the slots of local models. It waits until nobody is answered.
func (m *SessionModels) settle(ctx context.Context, session *pb.Session) error {
	if session.ActiveSequences > 0 {
		return nil
	}
	name := session.Vehicle.Name
	state, err := m.store.state(ctx, name, session.Vehicle.ContextLength)
	if err != nil || state == loadedByUs {
		return err
	}
	if state == loadedByStock {
		if err := m.store.unloadNow(ctx, name); err != nil {
			return err
		}
	}
	return m.store.load(ctx, name, session.Concurrency)
}

// forget takes a session's stub model out of the store.
func (m *SessionModels) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	session := m.Known.Registered(id)
	m.hold(id, 0)
	m.Known.Unregister(id)
	m.Known.Comeback.Over(id)
	if session == nil {
		return
	}
	if err := m.store.remove(m.ctx, session.Vehicle.Name); err != nil && m.ctx.Err() == nil {
		slog.Warn("session_model_not_removed", "session", id, "error", err)
	}
	m.removeCopies()
}

// hold declares what the shards hold as overhead to stock's scheduler, where that can't see it: Metal counts a process'
// own allocations only, while CUDA and the system's free memory count everybody's.
func (m *SessionModels) hold(id string, bytes uint64) {
	sum := m.Known.Hold(id, bytes)
	if runtime.GOOS == "darwin" {
		m.scheduler.overheadBytes.Store(sum)
	}
}

// removeCopies takes away what is called otherwise than a session's model and would be answered by that session. Routes
// that copy are refused (see package front); what a pull brought, or another program wrote into the store, is found here.
func (m *SessionModels) removeCopies() {
	sealed, err := m.store.sealed(m.ctx)
	if err != nil {
		if m.ctx.Err() == nil {
			slog.Warn("copies_of_session_models_not_looked_for", "error", err)
		}
		return
	}
	for name, marker := range sealed {
		if sessionapi.IsModel(name) {
			continue
		}
		slog.Warn("copy_of_session_model_removed", "name", name, "session", marker.Session)
		if err := m.store.remove(m.ctx, name); err != nil && m.ctx.Err() == nil {
			slog.Warn("copy_of_session_model_not_removed", "name", name, "error", err)
		}
	}
}
