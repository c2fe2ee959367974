package front

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/types/model"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/known"
	"kafila/ollama/pb"
)

// cards has one for every session, or none.
type cards struct{ card *pb.ModelCard }

func (c cards) ShowModel(context.Context, *pb.SessionRequest, ...grpc.CallOption) (*pb.ModelCard, error) {
	if c.card == nil {
		return nil, errors.New("it can't be read")
	}
	return c.card, nil
}

func say(t *testing.T, w http.ResponseWriter, value any) {
	t.Helper()
	if err := json.NewEncoder(w).Encode(value); err != nil {
		t.Error(err)
	}
}

// telling is a front before a stock server that knows a session's model and another one, as it does: by its stub model.
func telling(t *testing.T, side cards) *Front {
	t.Helper()
	models := known.New()
	session := fake.ReadySession()
	session.Vehicle.WeightBytes, session.Vehicle.Insert = 269_030_000, true
	session.Members = []*pb.Member{{Name: "laptop", Device: "gpu: Apple M3 Pro"}, {Name: "mini", Device: "cpu"}}
	session.Stages = []*pb.Stage{{Member: "mini", Start: 0, End: 20, Head: true}, {Member: "laptop", Start: 20, End: 30}}
	models.Register(session)
	models.Hold("s1", 90_000_000)
	stock := http.NewServeMux()
	stub := api.ModelDetails{Format: "gguf", Family: "kafila-qwen3"}
	stock.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) {
		say(t, w, api.ListResponse{Models: []api.ListModelResponse{{Name: fake.ModelName, Size: 1300, Details: stub}, {Name: "llama3:8b", Size: 5}}})
	})
	stock.HandleFunc("GET /api/ps", func(w http.ResponseWriter, _ *http.Request) {
		say(t, w, api.ProcessResponse{Models: []api.ProcessModelResponse{{Name: fake.ModelName, Size: 7}, {Name: "llama3:8b", Size: 5, SizeVRAM: 5}}})
	})
	stock.HandleFunc("POST /api/show", func(w http.ResponseWriter, r *http.Request) {
		var request api.ShowRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(request.Model, "nobody/") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		say(t, w, api.ShowResponse{
			Modelfile: "FROM /blobs/sha256-1", Template: "{{ .Prompt }}", Parameters: "temperature   0.2\nnum_ctx   4096", Details: stub,
			ModelInfo:    map[string]any{"general.architecture": "llama", "general.kafila.seal": "secret", "llama.block_count": 1},
			Capabilities: []model.Capability{model.CapabilityCompletion},
		})
	})
	stock.HandleFunc("GET /v1/models/{name}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "stock") })
	return &Front{Models: models, Sidecar: side, Key: []byte("k"), Stock: stock}
}

func told[T any](t *testing.T, f *Front, method, path, body string) (value T) {
	t.Helper()
	answer := httptest.NewRecorder()
	f.ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(body)))
	if err := json.Unmarshal(answer.Body.Bytes(), &value); err != nil || answer.Code != 200 {
		t.Fatalf("%s %s: %d %s: %v", method, path, answer.Code, answer.Body, err)
	}
	return value
}

func TestTags_ofASessionsModel_tellWhatAllHoldAndOthersStay(t *testing.T) {
	list := told[api.ListResponse](t, telling(t, cards{}), "GET", "/api/tags", "")
	ours, other := list.Models[0], list.Models[1]
	if ours.Size != 269_030_000 || ours.Details.Family != "qwen3" || ours.Details.ParameterSize != "134.52M" || ours.Details.QuantizationLevel != "BF16" {
		t.Errorf("%+v", ours)
	}
	if other.Size != 5 || other.Details.Family != "" {
		t.Errorf("%+v", other)
	}
}

func TestPs_ofASessionsModel_tellsWhatThisMachineHolds(t *testing.T) {
	list := told[api.ProcessResponse](t, telling(t, cards{}), "GET", "/api/ps", "")
	ours, other := list.Models[0], list.Models[1]
	if ours.Size != 90_000_000 || ours.SizeVRAM != ours.Size || ours.ContextLength != 4096 || ours.Details.Family != "qwen3" {
		t.Errorf("%+v", ours)
	}
	if other.Size != 5 || other.SizeVRAM != 5 || other.ContextLength != 0 {
		t.Errorf("%+v", other)
	}
}

func TestShow_ofASessionsModel_tellsOfTheModelAndNotOfItsStub(t *testing.T) {
	card := &pb.ModelCard{Template: "{{ messages }}", License: "Apache License", Info: map[string]uint64{"block_count": 30}}
	for _, key := range []string{"model", "name"} {
		shown := told[api.ShowResponse](t, telling(t, cards{card}), "POST", "/api/show", `{"`+key+`":"`+fake.ModelName+`"}`)
		for name, want := range map[string]any{
			"general.architecture": "qwen3", "general.parameter_count": 134515008.0, "qwen3.block_count": 30.0, "qwen3.context_length": 4096.0,
			"qwen3.embedding_length": 576.0, "kafila.session.members": 2.0, "kafila.session.blocks_here": "20-30",
			"kafila.session.bytes_here": 90e6, "kafila.session.bytes_in_all": 269030000.0,
		} {
			if shown.ModelInfo[name] != want {
				t.Errorf("%s: %v", name, shown.ModelInfo[name])
			}
		}
		if shown.ModelInfo["general.kafila.seal"] != nil || shown.ModelInfo["llama.block_count"] != nil {
			t.Errorf("of the stub: %v", shown.ModelInfo)
		}
		if shown.Template != card.Template || shown.License != card.License || !slices.Contains(shown.Capabilities, model.CapabilityInsert) {
			t.Errorf("%+v", shown)
		}
		if want := "FROM " + fake.ModelName + "\nPARAMETER temperature 0.2\n"; !strings.Contains(shown.Modelfile, want) {
			t.Errorf("%s", shown.Modelfile)
		}
	}
}

func TestShow_whenTheSidecarCannotSay_tellsTheRest(t *testing.T) {
	shown := told[api.ShowResponse](t, telling(t, cards{}), "POST", "/api/show", `{"model":"`+fake.ModelName+`"}`)
	if shown.Details.Family != "qwen3" || shown.ModelInfo["qwen3.context_length"] != 4096.0 {
		t.Errorf("%+v", shown)
	}
}

func TestV1Model_ofASessionsName_isToldHoweverItIsWritten(t *testing.T) {
	f := telling(t, cards{})
	for _, path := range []string{"/v1/models/" + fake.ModelName, "/v1/models/kafila%2Fsession%2Fmodel:7"} {
		one := told[map[string]any](t, f, "GET", path, "")
		if one["object"] != "model" || one["owned_by"] != "session" || one["id"] != fake.ModelName {
			t.Errorf("%s: %v", path, one)
		}
	}
	answer := httptest.NewRecorder()
	f.ServeHTTP(answer, httptest.NewRequest("GET", "/v1/models/llama3", nil))
	if answer.Body.String() != "stock" {
		t.Errorf("another model: %s", answer.Body)
	}
}

// Stock's own route ends at a slash, in plain text.
func TestV1Model_whenANameHasSlashes_isToldOrNotFoundInTheFormOfTheAPI(t *testing.T) {
	f := telling(t, cards{})
	answer := httptest.NewRecorder()
	f.ServeHTTP(answer, httptest.NewRequest("GET", "/v1/models/hf.co/people/model:8b", nil))
	if kind := answer.Header().Get("Content-Type"); kind != "application/json" || !strings.Contains(answer.Body.String(), `"owned_by":"people"`) {
		t.Errorf("%s: %s", kind, answer.Body)
	}
	answer = httptest.NewRecorder()
	f.ServeHTTP(answer, httptest.NewRequest("GET", "/v1/models/nobody/none", nil))
	want := `{"error":{"message":"model 'nobody/none' not found","type":"not_found_error","param":null,"code":null}}`
	if answer.Code != http.StatusNotFound || strings.TrimSpace(answer.Body.String()) != want {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
