package server

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ollama/ollama/envconfig"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/known"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/internal/stub"
	"kafila/ollama/pb"
)

// modelsOf looks after the sessions of s, beside a scheduler that has been adopted.
func modelsOf(t *testing.T, s *fake.Sidecar) (*SessionModels, *fake.Ollama) {
	t.Helper()
	parallel, overhead := envconfig.NumParallel, envconfig.GpuOverhead
	t.Cleanup(func() { envconfig.NumParallel, envconfig.GpuOverhead = parallel, overhead })
	scheduler := &Scheduler{}
	scheduler.Adopt()
	memory, ollama := fake.StartOllama(t)
	return NewSessionModels(t.Context(), clientOf(t, s), ollama, scheduler, seal.New(), ""), memory
}

func clientOf(t *testing.T, s *fake.Sidecar) pb.SidecarClient {
	t.Helper()
	socket, _ := fake.Start(t, s)
	conn, err := sidecar.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewSidecarClient(conn)
}

func TestSessionModels_ensure_registersOnceAndLoadsWithTheSessionsSlots(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{})
	before := envconfig.NumParallel()
	for range 3 {
		if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
			t.Fatal(err)
		}
	}
	request, _ := memory.Created(fake.ModelName)
	if request.Renderer != "kafila" || request.Parser != "kafila-tools" || request.Parameters["temperature"] != 0.2 ||
		request.Parameters["num_ctx"] != 4096.0 || request.Info["quantization_level"] != "BF16" {
		t.Errorf("%+v", request)
	}
	if memory.Slots(fake.ModelName) != 2 || memory.Loads() != 1 {
		t.Errorf("%d slots, %d loads", memory.Slots(fake.ModelName), memory.Loads())
	}
	if envconfig.NumParallel() != before {
		t.Error("local models would get the session's slots")
	}
}

func TestSessionModels_ensure_whenSomebodyRemovedTheModel_registersItAgain(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{})
	for range 2 {
		if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
			t.Fatal(err)
		}
		if _, there := memory.Created(fake.ModelName); !there {
			t.Fatal("the model is not registered")
		}
		memory.Forget(fake.ModelName)
	}
	if memory.Loads() != 2 {
		t.Errorf("%d loads", memory.Loads())
	}
}

func TestSessionModels_ensure_whenTheSessionChanged_loadsAnew(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{})
	if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
		t.Fatal(err)
	}
	more := fake.ReadySession()
	more.Concurrency = 8
	if err := models.ensure(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	if memory.Slots(fake.ModelName) != 8 {
		t.Errorf("%d slots", memory.Slots(fake.ModelName))
	}
}

func TestSessionModels_ensure_whenStockLoadedItItsOwnWay_loadsAnewOnceIdle(t *testing.T) {
	const forever = 100 * 365 * 24 * time.Hour
	for name, row := range map[string]struct {
		context int
		keep    time.Duration
		active  uint32
		loads   int
	}{
		"as we did":       {4096, forever, 0, 1},
		"another context": {2048, forever, 0, 2},
		"to end":          {4096, 5 * time.Minute, 0, 2},
		"while answering": {2048, forever, 1, 1},
	} {
		models, memory := modelsOf(t, &fake.Sidecar{})
		if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
			t.Fatal(err)
		}
		memory.Reload(fake.ModelName, row.context, row.keep)
		session := fake.ReadySession()
		session.ActiveSequences = row.active
		if err := models.ensure(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		if memory.Loads() != row.loads {
			t.Errorf("%s: %d loads", name, memory.Loads())
		}
	}
}

func TestSessionModels_whenTheSessionCloses_takesItsModelAway(t *testing.T) {
	gone := fake.ReadySession()
	gone.State = sessionapi.Closed
	models, memory := modelsOf(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession(), gone}})
	models.watch("s1")
	if names := memory.Names(); len(names) != 0 || memory.Loaded(fake.ModelName) || memory.Loads() != 1 {
		t.Errorf("left: %v, loads %d", names, memory.Loads())
	}
}

func TestSessionModels_whenFollowedTwice_watchesOnceMore(t *testing.T) {
	s := &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}}
	models, _ := modelsOf(t, s)
	models.follow("s1")
	models.follow("s1")
	if !models.watchAgain("s1") || models.watchAgain("s1") {
		t.Errorf("following: %v", models.following)
	}
}

func TestSessionModels_reconcile_removesTheStaleAndKeepsTheRest(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}})
	for _, name := range []string{"llama3:latest", fake.ModelName, "kafila/session/old:3"} {
		memory.Add(name)
	}
	models.Known.Register(&pb.Session{Id: "s3", Vehicle: &pb.StubModel{Name: "kafila/session/old:3"}})
	models.reconcile()
	if names := strings.Join(memory.Names(), " "); names != fake.ModelName+" llama3:latest" {
		t.Errorf("left: %s", names)
	}
	if models.Known.Registered("s3") != nil {
		t.Error("a stale session counts as registered")
	}
	for deadline := time.Now().Add(5 * time.Second); !memory.Loaded(fake.ModelName); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the live session was not followed")
		}
	}
}

func TestFollowed_whenTheCallFails_followsNothing(t *testing.T) {
	client := clientOf(t, &fake.Sidecar{})
	models := NewSessionModels(t.Context(), client, nil, &Scheduler{}, seal.New(), "")
	call := followed(models, client.CreateSession)
	if _, err := call(t.Context(), &pb.CreateSessionRequest{}); err == nil {
		t.Error("no error")
	}
	if len(models.following) != 0 {
		t.Errorf("follows %v", models.following)
	}
}

func TestSessionModels_whenTheSessionEnds_leavesNothingOfIt(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{})
	if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
		t.Fatal(err)
	}
	memory.Add("llama3:latest")
	memory.Copy(fake.ModelName, "mine:latest")
	models.forget("s1")
	if names := strings.Join(memory.Names(), " "); names != "llama3:latest" {
		t.Errorf("left: %s", names)
	}
}

func TestSessionModels_removeCopies_leavesSessionsModelsAndWhatOthersMade(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{})
	if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
		t.Fatal(err)
	}
	elsewhere := &SessionModels{ctx: t.Context(), Known: known.New(), store: &store{
		client: models.store.client, scheduler: &Scheduler{}, key: seal.New(),
	}}
	other := fake.ReadySession()
	other.Vehicle.Name = "kafila/session/other:8"
	if err := elsewhere.ensure(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	memory.Copy(other.Vehicle.Name, "foreign:latest") // the runner refuses it; whoever made it may keep it
	memory.Copy(fake.ModelName, "mine:latest")
	models.removeCopies()
	if names := strings.Join(memory.Names(), " "); names != "foreign:latest kafila/session/model:7 kafila/session/other:8" {
		t.Errorf("left: %s", names)
	}
}

func TestSessionModels_ensure_whenAnotherSessionHasTheName_leavesItToThatOne(t *testing.T) {
	models, memory := modelsOf(t, &fake.Sidecar{})
	if err := models.ensure(t.Context(), fake.ReadySession()); err != nil {
		t.Fatal(err)
	}
	before, _ := memory.Created(fake.ModelName)
	second := fake.ReadySession()
	second.Id, second.Vehicle.Name = "s2", "kafila/session/MODEL:7"
	if err := models.ensure(t.Context(), second); err == nil || !strings.Contains(err.Error(), "7-ocean-velvet-lamp") {
		t.Errorf("%v", err)
	}
	if after, _ := memory.Created(fake.ModelName); after.Files["session.gguf"] != before.Files["session.gguf"] || models.Known.Registered("s2") != nil {
		t.Error("the second session took the name")
	}
	models.forget("s1")
	if err := models.ensure(t.Context(), second); err != nil {
		t.Errorf("once the name is free: %v", err)
	}
}

func TestSessionModels_whenThisMachineIsAwayFromTheSession_keepsItsModel(t *testing.T) {
	asleep := fake.ReadySession()
	asleep.State = sessionapi.Sleeping
	s := &fake.Sidecar{Sessions: []*pb.Session{asleep}, Drops: true}
	models, memory := modelsOf(t, s)
	if err := models.changes("s1"); err == nil {
		t.Error("the watch did not end")
	}
	if _, there := memory.Created(fake.ModelName); !there || !memory.Loaded(fake.ModelName) {
		t.Error("what is asked meanwhile finds no model")
	}
	asleep.Vehicle = nil // it was away before it was ever planned
	if err := models.changes("s1"); err == nil {
		t.Error("the watch did not end")
	}
}

func TestSessionModels_reconcile_leavesTheModelsOfAnotherServerThatLives(t *testing.T) {
	owner := filepath.Join(t.TempDir(), "owner")
	memory, client := fake.StartOllama(t)
	other := NewSessionModels(t.Context(), clientOf(t, &fake.Sidecar{}), client, &Scheduler{}, seal.New(), owner)
	if err := other.ensure(t.Context(), fake.ReadySession()); err != nil {
		t.Fatal(err)
	}
	own := NewSessionModels(t.Context(), clientOf(t, &fake.Sidecar{}), client, &Scheduler{}, seal.New(), owner+" of mine")
	release, err := stub.Own(owner)
	if err != nil {
		t.Fatal(err)
	}
	own.reconcile()
	if names := memory.Names(); len(names) != 1 {
		t.Errorf("while the other server lives: %v", names)
	}
	release()
	own.reconcile()
	if names := memory.Names(); len(names) != 0 {
		t.Errorf("once it is gone: %v", names)
	}
}
