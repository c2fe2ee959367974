package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

func TestRoutes_unary_isTheSidecarsAnswer(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{})
	var session pb.Session
	if err := c.Client.Post(t.Context(), "create", &pb.CreateSessionRequest{Model: "org/model"}, &session); err != nil {
		t.Fatal(err)
	}
	if session.Id != "s1" || session.Code != "7-ocean-velvet-lamp" || session.Model != "org/model" {
		t.Errorf("%v", &session)
	}
}

func TestRoutes_whenTheSidecarRefuses_giveStatusAndSentence(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{})
	code, body := rawPost(t, c, "create", "{}")
	if code != 400 || body != "{\"error\":\"name a model\"}\n" {
		t.Errorf("%d %s", code, body)
	}
}

func TestRoutes_whenTheRequestIsWrong_sayWhere(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{})
	for name, row := range map[string]struct {
		route, body, want string
		code              int
	}{
		"no JSON":       {"create", "model=x", "not valid", 400},
		"unknown field": {"create", `{"modell":"x"}`, "modell", 400},
		"too large":     {"create", `{"model":"` + strings.Repeat("x", sessionapi.BodyLimitBytes) + `"}`, "too large", 400},
		"no such route": {"destroy", `{}`, "/api/session/destroy", 404},
	} {
		if code, body := rawPost(t, c, row.route, row.body); code != row.code || !strings.Contains(body, row.want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

func TestRoutes_weights_listRemoveAndPrune(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{
		Named:   []*pb.NamedModel{{Name: "qwen3:8b", Repository: "Qwen/Qwen3-8B"}},
		Weights: []*pb.KeptWeights{{Model: "org/one", DiskBytes: 1e9, LastUsedS: 1}, {Model: "org/two", DiskBytes: 2e9, LastUsedS: 1}},
	}).Client
	var named pb.ListModelsReply
	if err := c.Get(t.Context(), "models", nil, &named); err != nil || named.Models[0].Repository != "Qwen/Qwen3-8B" {
		t.Errorf("%v, %v", &named, err)
	}
	var freed pb.FreedReply
	if err := c.Delete(t.Context(), "weights", &pb.RemoveWeightsRequest{Model: "org/one"}, &freed); err != nil || freed.Bytes != 1e9 {
		t.Errorf("%v, %v", &freed, err)
	}
	if err := c.Delete(t.Context(), "weights", &pb.RemoveWeightsRequest{Model: "org/one"}, &freed); err == nil || err.Error() != "no weights of org/one are on this machine" {
		t.Errorf("%v", err)
	}
	if err := c.Post(t.Context(), "weights/prune", &pb.PruneWeightsRequest{UnusedForS: proto.Float64(3600)}, &freed); err != nil || freed.Bytes != 2e9 {
		t.Errorf("%v, %v", &freed, err)
	}
	var kept pb.ListWeightsReply
	if err := c.Get(t.Context(), "weights", nil, &kept); err != nil || len(kept.Weights) != 0 || kept.Folder != "/models" {
		t.Errorf("%v, %v", &kept, err)
	}
}

func rawPost(t *testing.T, c *servertest.Server, route, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, c.URL.JoinPath("api", "session", route).String(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+servertest.Token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(said)
}

func TestRoutes_status_isTheSessionNow(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{{Id: "s1", State: "linking"}, fake.ReadySession()}})
	var session pb.Session
	if err := c.Client.Get(t.Context(), "status", url.Values{"session": {"s1"}}, &session); err != nil || session.State != "linking" {
		t.Errorf("%v, %v", &session, err)
	}
	if err := c.Client.Get(t.Context(), "status", url.Values{"session": {"s9"}}, &session); err == nil || err.Error() != "there is no session s9" {
		t.Errorf("%v", err)
	}
}

func TestRoutes_watch_tellsReadyOnlyWhenTheModelCanBeAsked(t *testing.T) {
	states := []*pb.Session{{Id: "s1", State: "forming"}, fake.ReadySession()}
	c := servertest.Start(t, &fake.Sidecar{Sessions: states})
	var seen []string
	enough := errors.New("ready")
	err := c.Client.Watch(t.Context(), "s1", func(now *pb.Session) error {
		seen = append(seen, now.State)
		if now.State == sessionapi.Ready && !c.Ollama.Loaded(fake.ModelName) {
			t.Error("ready before the model was loaded")
		}
		if now.State == sessionapi.Ready {
			return enough
		}
		return nil
	})
	if err != enough || strings.Join(seen, " ") != "forming ready" {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestRoutes_watch_isServerSentEventsForWhoAsksForThose(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{{Id: "s1", State: "forming"}, {Id: "s1", State: "closed"}}})
	address := c.URL.JoinPath("api", "session", "watch")
	address.RawQuery = "session=s1"
	request, err := http.NewRequest(http.MethodGet, address.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", "Bearer "+servertest.Token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("Content-Type %q", kind)
	}
	reader := bufio.NewReader(answer.Body)
	for _, state := range []string{"forming", "closed"} {
		line, err := reader.ReadString('\n')
		empty, alsoErr := reader.ReadString('\n')
		data, isData := strings.CutPrefix(line, "data: ")
		if err != nil || alsoErr != nil || !isData || !json.Valid([]byte(data)) || !strings.Contains(data, state) || empty != "\n" {
			t.Fatalf("%v, %v, %q, %q", err, alsoErr, line, empty)
		}
	}
}

func TestRoutes_qr_isADrawingOrARefusal(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{})
	for body, want := range map[string]string{
		`{"text": "7-ocean-velvet-lamp"}`: "<svg ", `{"text": "` + strings.Repeat("x", 5000) + `"}`: "too long", `7`: "not valid",
	} {
		if _, said := rawPost(t, c, "qr", body); !strings.Contains(said, want) {
			t.Errorf("%.40s: %.80s", body, said)
		}
	}
}

func TestRoutes_whenTheModelCantBeRegistered_watchSaysSo(t *testing.T) {
	foreign := fake.ReadySession()
	foreign.Vehicle.Name = "llama3:latest"
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{{Id: "s1", State: "forming"}, foreign}})
	err := c.Client.Watch(t.Context(), "s1", func(*pb.Session) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "llama3") || len(c.Ollama.Names()) != 0 {
		t.Errorf("%v, %v", err, c.Ollama.Names())
	}
}

func TestRoutes_whenTheSidecarIsGone_sayWhatIsWrong(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{})
	c.Kill()
	if code, body := rawPost(t, c, "plan", "{}"); code != 503 || !strings.Contains(body, "not running") {
		t.Errorf("%d %s", code, body)
	}
}
