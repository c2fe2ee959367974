package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/format"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/stub"
	"kafila/ollama/pb"
)

// unloadTimeout is how long stock may take to end an idle runner.
const unloadTimeout = 5 * time.Second

// A store registers stub models in this member's own Ollama, through the same HTTP API that everybody uses.
type store struct {
	client    *api.Client
	scheduler *Scheduler
	key       seal.Key
	owner     string // the file that this server holds locked
}

// awaitServer returns when our own server answers. serve has found the port free before, and the stock server opens it
// without telling anybody, so a refused connection is tried again for a moment.
func (s *store) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		err := s.client.Heartbeat(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the server did not come up: %w", err)
		}
	}
}

// register makes the session's model known under the stub model's name, as `ollama create` would.
func (s *store) register(ctx context.Context, session *pb.Session) error {
	file, err := os.CreateTemp("", "kafila-stub-model-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := stub.Write(file, session, s.key, s.owner); err != nil {
		return err
	}
	digest, err := digestOf(file)
	if err != nil {
		return err
	}
	if err := s.client.CreateBlob(ctx, digest, file); err != nil {
		return err
	}
	return s.client.Create(ctx, createRequest(digest, session.Vehicle), func(api.ProgressResponse) error { return nil })
}

// digestOf leaves the file at its beginning.
func digestOf(file io.ReadSeeker) (string, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	_, err := file.Seek(0, io.SeekStart)
	return fmt.Sprintf("sha256:%x", hash.Sum(nil)), err
}

// createRequest says what `list` and `show` tell of the model. The family gets a prefix since stock treats several of
// the real names in its own ways, such as one request at a time.
func createRequest(digest string, v *pb.StubModel) *api.CreateRequest {
	parameters := map[string]any{"num_ctx": v.ContextLength}
	for name, value := range v.Parameters {
		parameters[name] = value
	}
	stream := false
	return &api.CreateRequest{
		Model:      v.Name,
		Files:      map[string]string{"session.gguf": digest},
		Renderer:   envelope.RendererName,
		Parser:     v.Parser,
		Parameters: parameters,
		Info: map[string]any{
			"model_family":       "kafila-" + v.Architecture,
			"parameter_size":     format.HumanNumber(v.ParameterCount),
			"quantization_level": v.Quantization,
			"context_length":     v.ContextLength,
			"embedding_length":   v.EmbeddingLength,
		},
		Stream: &stream,
	}
}

// load starts the model's runner to stay, with as many slots as the session takes sequences at once: stock reads that
// number at load from one setting for all models.
func (s *store) load(ctx context.Context, name string, concurrency uint32) error {
	s.scheduler.loadSlots.Store(max(concurrency, 1))
	defer s.scheduler.loadSlots.Store(0)
	return s.generate(ctx, name, -1)
}

// unload ends the model's runner once it is idle. A model that isn't there is fine.
func (s *store) unload(ctx context.Context, name string) error {
	return missingIsFine(s.generate(ctx, name, 0))
}

// How a stub model is loaded.
type loading string

const (
	notLoaded     loading = "not loaded"
	loadedByUs    loading = "by us" // to stay, with the session's context
	loadedByStock loading = "by stock"
)

// state tells how the model is loaded: ours has the stub model's context and no end.
func (s *store) state(ctx context.Context, name string, contextLength uint32) (loading, error) {
	running, err := s.client.ListRunning(ctx)
	if err != nil {
		return "", err
	}
	const year = 365 * 24 * time.Hour
	for _, model := range running.Models {
		switch {
		case model.Name != name:
		case model.ContextLength == int(contextLength) && time.Until(model.ExpiresAt) > year:
			return loadedByUs, nil
		default:
			return loadedByStock, nil
		}
	}
	return notLoaded, nil
}

// unloadNow unloads a model and returns when it is out; stock does not tell when, and loading it before would keep the
// old runner.
func (s *store) unloadNow(ctx context.Context, name string) error {
	if err := s.unload(ctx, name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, unloadTimeout)
	defer cancel()
	for {
		if state, err := s.state(ctx, name, 0); err == nil && state == notLoaded {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s did not unload: %w", name, ctx.Err())
		}
	}
}

// generate with an empty prompt only sets how long the model stays loaded.
func (s *store) generate(ctx context.Context, name string, keepAlive time.Duration) error {
	request := &api.GenerateRequest{Model: name, KeepAlive: &api.Duration{Duration: keepAlive}}
	return s.client.Generate(ctx, request, func(api.GenerateResponse) error { return nil })
}

func (s *store) remove(ctx context.Context, name string) error {
	if err := s.unload(ctx, name); err != nil {
		return err
	}
	return missingIsFine(s.client.Delete(ctx, &api.DeleteRequest{Model: name}))
}

// registered lists the stub models that the store knows, of any session.
func (s *store) registered(ctx context.Context) ([]string, error) {
	list, err := s.client.List(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, model := range list.Models {
		if strings.HasPrefix(model.Name, sessionapi.ModelPrefix) {
			names = append(names, model.Name)
		}
	}
	return names, nil
}

// isOfLivingServer is true of a stub model that another server wrote which still runs: several may share one store.
func (s *store) isOfLivingServer(ctx context.Context, name string) bool {
	shown, err := s.client.Show(ctx, &api.ShowRequest{Model: name})
	if err != nil {
		return false
	}
	marker, ok := stub.In(shown.ModelInfo)
	return ok && marker.Owner != s.owner && stub.IsHeld(marker.Owner)
}

// sealed gives the stub models that this run of the server wrote, by name: of those that are called otherwise than a
// session's model, somebody has made a copy. Nothing larger than a stub model is looked into.
func (s *store) sealed(ctx context.Context) (map[string]stub.Marker, error) {
	list, err := s.client.List(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]stub.Marker{}
	for _, model := range list.Models {
		if model.Size > 2*stub.LimitBytes { // the file, and what stock keeps beside it
			continue
		}
		shown, err := s.client.Show(ctx, &api.ShowRequest{Model: model.Name})
		if err != nil {
			continue // it went away, or can't be read by stock either
		}
		if marker, ok := stub.In(shown.ModelInfo); ok && marker.SealedBy(s.key) {
			found[model.Name] = marker
		}
	}
	return found, nil
}

func missingIsFine(err error) error {
	var failed api.StatusError
	if errors.As(err, &failed) && failed.StatusCode == http.StatusNotFound {
		return nil
	}
	return err
}
