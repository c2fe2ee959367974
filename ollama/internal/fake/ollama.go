package fake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/envconfig"
	"github.com/ollama/ollama/fs/ggml"
)

// An Ollama is as much of Ollama's API as the server's store needs: models by name, and whether and how each is loaded.
type Ollama struct {
	mu      sync.Mutex
	blobs   map[string][]byte // by digest
	created map[string]api.CreateRequest
	running map[string]api.ProcessModelResponse
	slots   map[string]uint // as stock would have read them at load
	loads   int
}

// StartOllama serves one and gives a client of it.
func StartOllama(t *testing.T) (*Ollama, *api.Client) {
	t.Helper()
	o := &Ollama{
		blobs: map[string][]byte{}, created: map[string]api.CreateRequest{}, running: map[string]api.ProcessModelResponse{}, slots: map[string]uint{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("HEAD /{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /api/blobs/{digest}", o.keep)
	mux.HandleFunc("POST /api/show", o.show)
	mux.HandleFunc("POST /api/create", o.create)
	mux.HandleFunc("POST /api/generate", o.generate)
	mux.HandleFunc("DELETE /api/delete", o.remove)
	mux.HandleFunc("GET /api/tags", o.tags)
	mux.HandleFunc("GET /api/ps", o.ps)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return o, api.NewClient(address, http.DefaultClient)
}

func (o *Ollama) keep(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blobs[r.PathValue("digest")] = content
	w.WriteHeader(http.StatusCreated)
}

// show tells what is in the model's file.
func (o *Ollama) show(w http.ResponseWriter, r *http.Request) {
	var request api.ShowRequest
	json.NewDecoder(r.Body).Decode(&request)
	o.mu.Lock()
	defer o.mu.Unlock()
	var told api.ShowResponse
	for _, digest := range o.created[request.Model].Files {
		if file, err := ggml.Decode(bytes.NewReader(o.blobs[digest]), -1); err == nil {
			told.ModelInfo = file.KV()
		}
	}
	json.NewEncoder(w).Encode(told)
}

func (o *Ollama) create(w http.ResponseWriter, r *http.Request) {
	var request api.CreateRequest
	json.NewDecoder(r.Body).Decode(&request)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created[request.Model] = request
	fmt.Fprintln(w, `{"status":"success"}`)
}

func (o *Ollama) generate(w http.ResponseWriter, r *http.Request) {
	var request api.GenerateRequest
	json.NewDecoder(r.Body).Decode(&request)
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.created[request.Model]; !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintln(w, `{"error":"model not found"}`)
		return
	}
	delete(o.running, request.Model)
	if request.KeepAlive.Duration != 0 {
		o.loads++
		o.slots[request.Model] = envconfig.NumParallel()
		o.running[request.Model] = api.ProcessModelResponse{
			Name: request.Model, ContextLength: int(o.created[request.Model].Parameters["num_ctx"].(float64)),
			ExpiresAt: time.Now().Add(request.KeepAlive.Duration),
		}
	}
	fmt.Fprintln(w, `{"done":true}`)
}

func (o *Ollama) remove(_ http.ResponseWriter, r *http.Request) {
	var request api.DeleteRequest
	json.NewDecoder(r.Body).Decode(&request)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.created, request.Model)
}

func (o *Ollama) tags(w http.ResponseWriter, _ *http.Request) {
	var list api.ListResponse
	for _, name := range o.Names() {
		list.Models = append(list.Models, api.ListModelResponse{Name: name})
	}
	json.NewEncoder(w).Encode(list)
}

func (o *Ollama) ps(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list api.ProcessResponse
	for _, model := range o.running {
		list.Models = append(list.Models, model)
	}
	json.NewEncoder(w).Encode(list)
}

// Add puts a model there as somebody else would.
func (o *Ollama) Add(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created[name] = api.CreateRequest{Model: name}
}

// Copy has a model under another name too, as somebody else would make it.
func (o *Ollama) Copy(from, to string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.created[to] = o.created[from]
}

// Forget takes a model away as somebody else would.
func (o *Ollama) Forget(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.created, name)
}

// Created is how a model was made, and whether it is there.
func (o *Ollama) Created(name string) (api.CreateRequest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	request, there := o.created[name]
	return request, there
}

// Slots is how many requests at once a model was loaded for.
func (o *Ollama) Slots(name string) uint {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.slots[name]
}

// Loads is how often a model was loaded.
func (o *Ollama) Loads() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.loads
}

// Names lists the models.
func (o *Ollama) Names() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var names []string
	for name := range o.created {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Loaded is true of a model whose runner runs.
func (o *Ollama) Loaded(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.running[name]
	return ok
}

// Reload has the model loaded as stock would for a request with these wishes.
func (o *Ollama) Reload(name string, context int, keep time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running[name] = api.ProcessModelResponse{Name: name, ContextLength: context, ExpiresAt: time.Now().Add(keep)}
}
