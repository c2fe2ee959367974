package front

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/known"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/stub"
	"kafila/ollama/pb"
)

// A world is a server as `serve` builds it, with a stock handler that tells what came through.
type world struct {
	mux     *http.ServeMux
	models  *known.Models
	key     seal.Key
	fetched int    // times that stock may have taken in what others made
	passed  string // method, path and body of what stock got last
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Setenv("OLLAMA_MODELS", t.TempDir())
	w := &world{mux: http.NewServeMux(), models: known.New(), key: seal.New()}
	w.models.Register(fake.ReadySession())
	w.models.Comeback.Expect(nil)
	w.mux.HandleFunc("/debug/requests", func(http.ResponseWriter, *http.Request) {}) // as gRPC's tracing has it
	before := &Front{Models: w.models, Sidecar: cards{}, Fetched: func() { w.fetched++ }, Key: w.key}
	before.StandBefore(w.mux)
	w.mux.HandleFunc("/", func(answer http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.passed = r.Method + " " + r.URL.Path + " " + string(body)
		fmt.Fprint(answer, "stock")
	})
	return w
}

func (w *world) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	w.passed = ""
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, request)
	return answer
}

func TestFront_whatIsNoSessions_passesByteForByte(t *testing.T) {
	w := newWorld(t)
	large := `{"model":"llama3","system":"` + strings.Repeat("x", 3<<20) + `"}`
	for _, row := range [][3]string{
		{"GET", "/", ""},
		{"GET", "/api/tags", ""},
		{"POST", "/api/chat", `{"model":"kafila/session/model:7","messages":[]}`},
		{"POST", "/api/generate", `{"model":"kafila/session/model:7"}`},
		{"POST", "/v1/chat/completions", `{"model":"kafila/session/model:7"}`},
		{"POST", "/api/show", `{"model":"kafila/session/model:7"}`},
		{"POST", "/api/pull", `{"model":"llama3","stream":false}  trailing`},
		{"POST", "/api/pull", `{"name":"kafila/other/model"}`},
		{"POST", "/api/pull", `{"model":"session/model:7"}`},
		{"POST", "/api/pull", ``},
		{"POST", "/api/pull", `{"model":`},
		{"POST", "/api/pull", `{"model":7}`},
		{"POST", "/api/push", `{"model":"me/mine"}`},
		{"POST", "/api/copy", `{"source":"a","destination":"b"}`},
		{"POST", "/api/create", large},
		{"POST", "/api/create", `{"model":"a","from":"b","files":{"x":"sha256:nonsense","y":"../../etc/passwd"}}`},
		{"DELETE", "/api/delete", `{"model":"llama3","name":"kafila/session/model:7"}`},
		{"DELETE", "/api/delete", `{"model":"kafila/session/gone:9"}`},
		{"POST", "/api/experimental/aliases", `{"alias":"a","target":"b"}`},
		{"DELETE", "/api/experimental/aliases", `{"alias":"a"}`},
		{"GET", "/api/pull", `{"model":"kafila/session/model:7"}`},
	} {
		answer := w.ask(row[0], row[1], row[2])
		if want := row[0] + " " + row[1] + " " + row[2]; w.passed != want || answer.Body.String() != "stock" {
			t.Errorf("%.80s: stock got %.80q, the client %q", want, w.passed, answer.Body)
		}
	}
}

func TestFront_whatWouldCopyTakeOrCaptureASessionsModel_isRefusedInWords(t *testing.T) {
	w := newWorld(t)
	digest := keepStub(t, w.key)
	foreign := keepStub(t, seal.New())
	for _, row := range [][4]string{
		{"POST", "/api/pull", `{"model":"kafila/session/model:7"}`, "never pulled"},
		{"POST", "/api/pull", `{"name":"kafila/session/gone:9"}`, "never pulled"},
		{"POST", "/api/pull", `{"model":"https://KAFILA/Session/model:7"}`, "never pulled"},
		{"POST", "/api/pull", `{"MODEL":"kafila/session/model@sha256:00"}`, "never pulled"},
		{"POST", "/api/pull", `{"model":"a","model":"kafila/session/model:7"}`, "never pulled"},
		{"POST", "/api%2Fpull", `{"model":"kafila/session/model:7"}`, "never pulled"},
		{"POST", "/%61pi/pull", `{"model":"kafila/session/model:7"}`, "never pulled"},
		{"POST", "/api/push", `{"model":"kafila/session/model:7"}`, "can't be pushed"},
		{"POST", "/api/copy", `{"source":"kafila/session/model:7","destination":"llama3"}`, "can't be copied"},
		{"POST", "/api/copy", `{"source":"llama3","destination":"kafila/session/model:7"}`, "choose another"},
		{"POST", "/api/create", `{"model":"llama3","from":"kafila/session/model:7"}`, "can't be copied"},
		{"POST", "/api/create", `{"model":"llama3","from":"kafila/session/gone:7"}`, "can't be copied"},
		{"POST", "/api/create", `{"model":"kafila/session/planted:7","from":"llama3"}`, "choose another"},
		{"POST", "/api/create", `{"model":"llama3","files":{"m.gguf":"` + digest + `"}}`, "can't be copied"},
		{"POST", "/api/create", `{"model":"llama3","files":{"m.gguf":"` + foreign + `"}}`, "can't be copied"},
		{"POST", "/api/create", `{"model":"llama3","adapters":{"m.gguf":"` + digest + `"}}`, "can't be copied"},
		{"POST", "/api/create", `{"pad":"` + strings.Repeat("x", lookLimitBytes) + `","from":"kafila/session/model:7"}`, "larger"},
		{"POST", "/api/experimental/aliases", `{"alias":"llama3","target":" kafila/session/model:7"}`, "can't be copied"},
		{"POST", "/api%2Fexperimental/aliases", `{"alias":"llama3","target":"kafila/session/model:7"}`, "can't be copied"},
		{"POST", "/api/experimental/aliases", `{"alias":"kafila/session/model:7","target":"llama3"}`, "choose another"},
		{"DELETE", "/api/delete", `{"model":"kafila/session/model:7"}`, "ollama session leave"},
		{"DELETE", "/api/delete", `{"name":"Kafila/session/MODEL:7"}`, "ollama session leave"},
	} {
		answer := w.ask(row[0], row[1], row[2])
		if w.passed != "" || answer.Code < 400 || !strings.Contains(answer.Body.String(), row[3]) {
			t.Errorf("%s %s %.80s: %d %.200s, stock got %.80q", row[0], row[1], row[2], answer.Code, answer.Body, w.passed)
		}
	}
}

func TestFront_whenTheServersOwnStoreAsks_passesIt(t *testing.T) {
	w := newWorld(t)
	body := `{"model":"kafila/session/model:7","files":{"session.gguf":"` + keepStub(t, w.key) + `"}}`
	for name, row := range map[string]struct {
		seal   string
		passes bool
	}{
		"ours":               {w.key.Of(seal.Store), true},
		"a runner's":         {w.key.Of(seal.Runner, "11434"), false},
		"another server's":   {seal.New().Of(seal.Store), false},
		"none that is there": {"", false},
	} {
		if w.ask("POST", "/api/create", body, seal.Header, row.seal); (w.passed != "") != row.passes {
			t.Errorf("%s: stock got %q", name, w.passed)
		}
	}
}

// keepStub puts a stub model among the blobs of the store, as an upload would, and gives its digest.
func keepStub(t *testing.T, key seal.Key) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stub.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := stub.Write(file, &pb.Session{Id: "s1", Vehicle: &pb.StubModel{Name: fake.ModelName}}, key, ""); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	blobs := filepath.Join(os.Getenv("OLLAMA_MODELS"), "blobs")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(blobs, "sha256-"+sum), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return "sha256:" + sum
}

func TestFront_whenStockFetchedWhatOthersMade_tellsIt(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/api/show", "/api/copy", "/api/pull", "/api/create"} {
		w.ask("POST", path, `{"model":"llama3"}`)
	}
	w.ask("POST", "/api/pull", `{"model":"kafila/session/model:7"}`)
	if w.fetched != 2 {
		t.Errorf("told %d times", w.fetched)
	}
}
