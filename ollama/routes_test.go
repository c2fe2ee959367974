package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/ollama/ollama/api"

	"kafila/ollama/pb"
)

// controlled serves the session routes in front of s, with a store that forgets nothing, and gives the command line's
// end of them.
func controlled(t *testing.T, s *scripted) (*control, *memoryStore, func()) {
	t.Helper()
	side, kill := runningSidecar(t, s)
	memory, base := startMemoryStore(t)
	models := newSessionModels(t.Context(), side.client, &store{client: api.NewClient(base, http.DefaultClient)})
	server := httptest.NewServer(sessionRoutes(side, models))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &control{base: address}, memory, kill
}

func TestRoutes_unary_isTheSidecarsAnswer(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	var session pb.Session
	if err := c.post(t.Context(), "create", &pb.CreateSessionRequest{Model: "org/model"}, &session); err != nil {
		t.Fatal(err)
	}
	if session.Id != "s1" || session.Code != "7-ocean-velvet-lamp" || session.Model != "org/model" {
		t.Errorf("%v", &session)
	}
}

func TestRoutes_whenTheSidecarRefuses_giveStatusAndSentence(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	code, body := rawPost(t, c, "create", "{}")
	if code != 400 || body != "{\"error\":\"name a model\"}\n" {
		t.Errorf("%d %s", code, body)
	}
}

func TestRoutes_whenTheRequestIsWrong_sayWhere(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	for name, row := range map[string]struct {
		route, body, want string
		code              int
	}{
		"no JSON":       {"create", "model=x", "not valid", 400},
		"unknown field": {"create", `{"modell":"x"}`, "modell", 400},
		"too large":     {"create", `{"model":"` + strings.Repeat("x", bodyLimitBytes) + `"}`, "too large", 400},
		"no such route": {"destroy", `{}`, "/api/session/destroy", 404},
	} {
		if code, body := rawPost(t, c, row.route, row.body); code != row.code || !strings.Contains(body, row.want) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

func rawPost(t *testing.T, c *control, route, body string) (int, string) {
	t.Helper()
	answer, err := http.Post(c.base.JoinPath("api", "session", route).String(), "application/json", strings.NewReader(body))
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
	c, _, _ := controlled(t, &scripted{sessions: []*pb.Session{{Id: "s1", State: "linking"}, readySession()}})
	var session pb.Session
	if err := c.get(t.Context(), "status", url.Values{"session": {"s1"}}, &session); err != nil || session.State != "linking" {
		t.Errorf("%v, %v", &session, err)
	}
	if err := c.get(t.Context(), "status", url.Values{"session": {"s9"}}, &session); err == nil || err.Error() != "there is no session s9" {
		t.Errorf("%v", err)
	}
}

func TestRoutes_watch_tellsReadyOnlyWhenTheModelCanBeAsked(t *testing.T) {
	states := []*pb.Session{{Id: "s1", State: "forming"}, readySession()}
	c, memory, _ := controlled(t, &scripted{sessions: states})
	var seen []string
	err := c.watch(t.Context(), "s1", func(now *pb.Session) error {
		seen = append(seen, now.State)
		if now.State == ready && !memory.loaded("kafila/session/model:7") {
			t.Error("ready before the model was loaded")
		}
		if now.State == ready {
			return errReady
		}
		return nil
	})
	if err != errReady || strings.Join(seen, " ") != "forming ready" {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestRoutes_whenTheModelCantBeRegistered_watchSaysSo(t *testing.T) {
	foreign := readySession()
	foreign.Vehicle.Name = "llama3:latest"
	c, memory, _ := controlled(t, &scripted{sessions: []*pb.Session{{Id: "s1", State: "forming"}, foreign}})
	err := c.watch(t.Context(), "s1", func(*pb.Session) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "llama3") || len(memory.names()) != 0 {
		t.Errorf("%v, %v", err, memory.names())
	}
}

func TestRoutes_whenTheSidecarIsGone_sayWhatIsWrong(t *testing.T) {
	c, _, kill := controlled(t, &scripted{})
	kill()
	if code, body := rawPost(t, c, "plan", "{}"); code != 503 || !strings.Contains(body, "not running") {
		t.Errorf("%d %s", code, body)
	}
}

func TestUntilReady_endsWithReady_orWithWhatWentWrong(t *testing.T) {
	failed := &pb.Session{Id: "s1", State: closed, Failure: "model needs 41.2 GB, the members offer 36.0 GB", FailureCode: "FAILED_PRECONDITION"}
	for name, row := range map[string]struct {
		sessions []*pb.Session
		want     string
	}{
		"ready":   {[]*pb.Session{{Id: "s1", State: "linking"}, readySession()}, ""},
		"failed":  {[]*pb.Session{{Id: "s1", State: "linking"}, failed}, failed.Failure},
		"dropped": {[]*pb.Session{{Id: "s1", State: "linking"}}, "before it was ready"},
	} {
		c, _, _ := controlled(t, &scripted{sessions: row.sessions, drops: true})
		var shown bytes.Buffer
		session, err := untilReady(t.Context(), c, "s1", jsonLines{&shown})
		switch {
		case row.want == "" && (err != nil || session.Vehicle.Name != "kafila/session/model:7"):
			t.Errorf("%s: %v, %v", name, session, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v", name, err)
		case strings.Count(shown.String(), "\n") != len(row.sessions):
			t.Errorf("%s: shown %s", name, shown.String())
		}
	}
}

func TestUntilReady_whenInterrupted_tellsHowToLeave(t *testing.T) {
	c, _, _ := controlled(t, &scripted{sessions: []*pb.Session{{Id: "s1", State: "linking"}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := untilReady(ctx, c, "s1", jsonLines{io.Discard}); !errors.As(err, new(interrupted)) || !strings.Contains(err.Error(), "session leave s1") {
		t.Errorf("%v", err)
	}
}

func TestFollowed_whenTheCallFails_followsNothing(t *testing.T) {
	side, _ := runningSidecar(t, &scripted{})
	models := newSessionModels(t.Context(), side.client, nil)
	call := followed(models, side.client.CreateSession)
	if _, err := call(t.Context(), &pb.CreateSessionRequest{}); err == nil {
		t.Error("no error")
	}
	if len(models.following) != 0 {
		t.Errorf("follows %v", models.following)
	}
}
