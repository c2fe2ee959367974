package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/envconfig"

	"kafila/ollama/pb"
)

// A memoryStore is as much of Ollama's API as a store needs: models by name, and whether and how each is loaded.
type memoryStore struct {
	mu      sync.Mutex
	created map[string]api.CreateRequest
	running map[string]api.ProcessModelResponse
	slots   map[string]uint // as stock would have read them at load
	loads   int
}

func startMemoryStore(t *testing.T) (*memoryStore, *url.URL) {
	t.Helper()
	m := &memoryStore{
		created: map[string]api.CreateRequest{}, running: map[string]api.ProcessModelResponse{}, slots: map[string]uint{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("HEAD /{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /api/blobs/{digest}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux.HandleFunc("POST /api/create", m.create)
	mux.HandleFunc("POST /api/generate", m.generate)
	mux.HandleFunc("DELETE /api/delete", m.remove)
	mux.HandleFunc("GET /api/tags", m.tags)
	mux.HandleFunc("GET /api/ps", m.ps)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return m, address
}

func (m *memoryStore) create(w http.ResponseWriter, r *http.Request) {
	var request api.CreateRequest
	json.NewDecoder(r.Body).Decode(&request)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created[request.Model] = request
	fmt.Fprintln(w, `{"status":"success"}`)
}

func (m *memoryStore) generate(w http.ResponseWriter, r *http.Request) {
	var request api.GenerateRequest
	json.NewDecoder(r.Body).Decode(&request)
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.created[request.Model]; !ok {
		writeError(w, http.StatusNotFound, "model not found")
		return
	}
	delete(m.running, request.Model)
	if request.KeepAlive.Duration != 0 {
		m.loads++
		m.slots[request.Model] = envconfig.NumParallel()
		m.running[request.Model] = api.ProcessModelResponse{
			Name: request.Model, ContextLength: int(m.created[request.Model].Parameters["num_ctx"].(float64)),
			ExpiresAt: time.Now().Add(request.KeepAlive.Duration),
		}
	}
	fmt.Fprintln(w, `{"done":true}`)
}

func (m *memoryStore) remove(_ http.ResponseWriter, r *http.Request) {
	var request api.DeleteRequest
	json.NewDecoder(r.Body).Decode(&request)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.created, request.Model)
}

func (m *memoryStore) tags(w http.ResponseWriter, _ *http.Request) {
	var list api.ListResponse
	for _, name := range m.names() {
		list.Models = append(list.Models, api.ListModelResponse{Name: name})
	}
	writeJSON(w, list)
}

func (m *memoryStore) ps(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list api.ProcessResponse
	for _, model := range m.running {
		list.Models = append(list.Models, model)
	}
	writeJSON(w, list)
}

func (m *memoryStore) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for name := range m.created {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *memoryStore) loaded(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.running[name]
	return ok
}

// reload has the model loaded as stock would for a request with these wishes.
func (m *memoryStore) reload(name string, context int, keep time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running[name] = api.ProcessModelResponse{Name: name, ContextLength: context, ExpiresAt: time.Now().Add(keep)}
}

var adoptOnce sync.Once

func modelsOf(t *testing.T, s *scripted) (*sessionModels, *memoryStore) {
	t.Helper()
	adoptOnce.Do(adoptScheduler)
	side, _ := runningSidecar(t, s)
	memory, base := startMemoryStore(t)
	return newSessionModels(t.Context(), side.client, &store{client: api.NewClient(base, http.DefaultClient)}), memory
}

const stubName = "kafila/session/model:7"

func TestSessionModels_ensure_registersOnceAndLoadsWithTheSessionsSlots(t *testing.T) {
	models, memory := modelsOf(t, &scripted{})
	before := envconfig.NumParallel()
	for range 3 {
		if err := models.ensure(t.Context(), readySession()); err != nil {
			t.Fatal(err)
		}
	}
	request := memory.created[stubName]
	if request.Renderer != "kafila" || request.Parser != "kafila-tools" || request.Parameters["temperature"] != 0.2 ||
		request.Parameters["num_ctx"] != 4096.0 || request.Info["quantization_level"] != "BF16" {
		t.Errorf("%+v", request)
	}
	if memory.slots[stubName] != 2 || memory.loads != 1 {
		t.Errorf("%d slots, %d loads", memory.slots[stubName], memory.loads)
	}
	if envconfig.NumParallel() != before {
		t.Error("local models would get the session's slots")
	}
}

func TestSessionModels_ensure_whenSomebodyRemovedTheModel_registersItAgain(t *testing.T) {
	models, memory := modelsOf(t, &scripted{})
	for range 2 {
		if err := models.ensure(t.Context(), readySession()); err != nil {
			t.Fatal(err)
		}
		if _, there := memory.created[stubName]; !there {
			t.Fatal("the model is not registered")
		}
		delete(memory.created, stubName)
	}
	if memory.loads != 2 {
		t.Errorf("%d loads", memory.loads)
	}
}

func TestSessionModels_ensure_whenTheSessionChanged_loadsAnew(t *testing.T) {
	models, memory := modelsOf(t, &scripted{})
	if err := models.ensure(t.Context(), readySession()); err != nil {
		t.Fatal(err)
	}
	more := readySession()
	more.Concurrency = 8
	if err := models.ensure(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	if memory.slots[stubName] != 8 {
		t.Errorf("%d slots", memory.slots[stubName])
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
		models, memory := modelsOf(t, &scripted{})
		if err := models.ensure(t.Context(), readySession()); err != nil {
			t.Fatal(err)
		}
		memory.reload(stubName, row.context, row.keep)
		session := readySession()
		session.ActiveSequences = row.active
		if err := models.ensure(t.Context(), session); err != nil {
			t.Fatal(err)
		}
		if memory.loads != row.loads {
			t.Errorf("%s: %d loads", name, memory.loads)
		}
	}
}

func TestSessionModels_whenTheSessionCloses_takesItsModelAway(t *testing.T) {
	gone := readySession()
	gone.State = closed
	models, memory := modelsOf(t, &scripted{sessions: []*pb.Session{readySession(), gone}})
	models.watch("s1")
	if names := memory.names(); len(names) != 0 || memory.loaded(stubName) || memory.loads != 1 {
		t.Errorf("left: %v, loads %d", names, memory.loads)
	}
}

func TestSessionModels_whenFollowedTwice_watchesOnceMore(t *testing.T) {
	s := &scripted{sessions: []*pb.Session{readySession()}}
	models, _ := modelsOf(t, s)
	models.follow("s1")
	models.follow("s1")
	if !models.watchAgain("s1") || models.watchAgain("s1") {
		t.Errorf("following: %v", models.following)
	}
}

func TestSessionModels_reconcile_removesTheStaleAndKeepsTheRest(t *testing.T) {
	models, memory := modelsOf(t, &scripted{sessions: []*pb.Session{readySession()}})
	for _, name := range []string{"llama3:latest", stubName, "kafila/session/old:3"} {
		memory.created[name] = api.CreateRequest{Model: name}
	}
	models.known["s3"] = &pb.Session{Id: "s3", Vehicle: &pb.StubModel{Name: "kafila/session/old:3"}}
	models.reconcile()
	if names := strings.Join(memory.names(), " "); names != stubName+" llama3:latest" {
		t.Errorf("left: %s", names)
	}
	if models.known["s3"] != nil {
		t.Error("a stale session counts as registered")
	}
	for deadline := time.Now().Add(5 * time.Second); !memory.loaded(stubName); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the live session was not followed")
		}
	}
}
