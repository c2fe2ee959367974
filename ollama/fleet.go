package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/pb"
)

const closed = "closed" // the last of a session's states

const ready = "ready" // the state in which its model answers

const replanning = "replanning" // it was ready, and will be

// A fleet keeps one vehicle in the store for each session that is ready, by following every session that the sidecar
// is in.
type fleet struct {
	ctx     context.Context // of the server: followers end with it
	sidecar pb.SidecarClient
	store   *store

	followers sync.Mutex
	following map[string]bool // session ids that are watched → whether to watch once more afterwards

	mu    sync.Mutex             // one change of the store at a time
	known map[string]*pb.Session // session id → as it was registered last
	held  map[string]uint64      // session id → bytes that its shard holds here
}

func newFleet(ctx context.Context, sidecar pb.SidecarClient, store *store) *fleet {
	return &fleet{
		ctx: ctx, sidecar: sidecar, store: store,
		following: map[string]bool{}, known: map[string]*pb.Session{}, held: map[string]uint64{},
	}
}

// reconcile makes the store agree with a sidecar that has just started: vehicles of sessions that are no more go, and
// the sessions that there are, are followed.
func (f *fleet) reconcile() {
	if err := f.store.awaitServer(f.ctx); err != nil {
		slog.Warn("vehicles_not_reconciled", "error", err)
		return
	}
	list, err := f.sidecar.ListSessions(f.ctx, &pb.ListSessionsRequest{})
	if err != nil {
		slog.Warn("vehicles_not_reconciled", "error", err)
		return
	}
	var live []string
	for _, session := range list.Sessions {
		if session.State != closed {
			live = append(live, session.GetVehicle().GetName())
		}
	}
	f.removeStale(live)
	for _, session := range list.Sessions {
		f.follow(session.Id)
	}
}

func (f *fleet) removeStale(live []string) {
	names, err := f.store.registered(f.ctx)
	if err != nil {
		slog.Warn("vehicles_not_reconciled", "error", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if slices.Contains(live, name) {
			continue
		}
		maps.DeleteFunc(f.known, func(_ string, s *pb.Session) bool { return s.Vehicle.Name == name })
		if err := f.store.remove(f.ctx, name); err != nil {
			slog.Warn("stale_vehicle_not_removed", "name", name, "error", err)
		}
	}
}

// follow watches a session until it closes or the sidecar is gone. One that is watched already is watched once more
// after that, since it may be a session that was left and joined again.
func (f *fleet) follow(id string) {
	f.followers.Lock()
	defer f.followers.Unlock()
	if _, already := f.following[id]; already {
		f.following[id] = true
		return
	}
	f.following[id] = false
	go func() {
		for again := true; again; again = f.watchAgain(id) {
			f.watch(id)
		}
	}()
}

func (f *fleet) watchAgain(id string) bool {
	f.followers.Lock()
	defer f.followers.Unlock()
	again := f.following[id]
	f.following[id] = false
	if !again {
		delete(f.following, id)
	}
	return again
}

// watch takes a session's model away when the sidecar says that there is no such session any more, and leaves it when
// the sidecar is gone: what asks for it is then told so.
func (f *fleet) watch(id string) {
	err := f.changes(id)
	switch {
	case err == nil, errors.Is(err, io.EOF), status.Code(err) == codes.NotFound:
		f.forget(id)
	case f.ctx.Err() == nil:
		slog.Warn("session_not_followed", "session", id, "error", err)
	}
}

// changes acts on each change of a session until it is closed.
func (f *fleet) changes(id string) error {
	stream, err := f.sidecar.WatchSession(f.ctx, &pb.SessionRequest{Session: id})
	if err != nil {
		return err
	}
	for {
		session, err := stream.Recv()
		if err != nil {
			return err
		}
		switch session.State {
		case closed:
			return nil
		case ready:
			if err := f.ensure(f.ctx, session); err != nil {
				slog.Error("vehicle_not_registered", "session", id, "error", err)
			}
		}
		f.hold(id, session.ReservedMemoryBytes)
	}
}

// ensure returns when the model of a session that is ready can be asked, registering and loading it where needed.
func (f *fleet) ensure(ctx context.Context, session *pb.Session) error {
	if name := session.GetVehicle().GetName(); !strings.HasPrefix(name, vehiclePrefix) {
		return fmt.Errorf("the session's model can't be registered as %q: only names below %s are ours", name, vehiclePrefix)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.known[session.Id]
	if old != nil && old.Concurrency == session.Concurrency && proto.Equal(old.Vehicle, session.Vehicle) {
		names, err := f.store.registered(ctx)
		if err != nil {
			return err
		}
		if slices.Contains(names, session.Vehicle.Name) {
			return f.settle(ctx, session)
		} // else somebody has removed the model, not the session
	}
	if old != nil {
		if err := f.store.unload(ctx, old.Vehicle.Name); err != nil {
			return err
		}
	}
	if err := f.store.register(ctx, session); err != nil {
		return err
	}
	if err := f.store.load(ctx, session.Vehicle.Name, session.Concurrency); err != nil {
		return err
	}
	f.known[session.Id] = session
	slog.Info("vehicle_loaded", "session", session.Id, "name", session.Vehicle.Name, "slots", session.Concurrency)
	return nil
}

// settle loads the vehicle anew where stock has unloaded it, or has loaded it in its own way: a request with a
// keep_alive or num_ctx of its own makes it do so, with the slots of local models. It waits until nobody is answered.
func (f *fleet) settle(ctx context.Context, session *pb.Session) error {
	if session.ActiveSequences > 0 {
		return nil
	}
	name := session.Vehicle.Name
	state, err := f.store.state(ctx, name, session.Vehicle.ContextLength)
	if err != nil || state == loadedByUs {
		return err
	}
	if state == loadedByStock {
		if err := f.store.unloadNow(ctx, name); err != nil {
			return err
		}
	}
	return f.store.load(ctx, name, session.Concurrency)
}

// forget takes a session's vehicle out of the store.
func (f *fleet) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	session := f.known[id]
	delete(f.known, id)
	f.holdLocked(id, 0)
	if session == nil {
		return
	}
	if err := f.store.remove(f.ctx, session.Vehicle.Name); err != nil && f.ctx.Err() == nil {
		slog.Warn("vehicle_not_removed", "session", id, "error", err)
	}
}

func (f *fleet) hold(id string, bytes uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holdLocked(id, bytes)
}

// holdLocked declares what the shards hold as overhead to stock's scheduler, where that can't see it: Metal counts a
// process' own allocations only, while CUDA and the system's free memory count everybody's.
func (f *fleet) holdLocked(id string, bytes uint64) {
	f.held[id] = bytes
	if runtime.GOOS != "darwin" {
		return
	}
	var sum uint64
	for _, held := range f.held {
		sum += held
	}
	overheadBytes.Store(sum)
}
