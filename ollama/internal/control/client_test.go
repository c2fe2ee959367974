package control_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/pb"
)

// controlOf is the command line's end of a server that answers by handler.
func controlOf(t *testing.T, handler http.HandlerFunc) *control.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return control.New(address, "")
}

func TestControl_whenTheServerIsAnotherOllama_saysSo(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no such page":   http.NotFound,
		"not for posts":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"a foreign JSON": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); fmt.Fprint(w, `{"detail":"none"}`) },
	} {
		err := controlOf(t, handler).Post(t.Context(), "doctor", &pb.DoctorRequest{}, &pb.DoctorReply{})
		if err == nil || !strings.Contains(err.Error(), "another Ollama") || !strings.Contains(err.Error(), "OLLAMA_HOST") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestControl_whenNobodyServes_saysHowToStart(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	address := listener.Addr().String()
	c := control.New(&url.URL{Scheme: "http", Host: address}, "")
	err = c.Get(t.Context(), "list", nil, &pb.ListSessionsReply{})
	if err == nil || !strings.Contains(err.Error(), "no Ollama server answers at "+address) || strings.Contains(err.Error(), "Get ") {
		t.Errorf("%v", err)
	}
}

func TestControl_whenTheServerGoesAway_saysSo(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"before it answers": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"in mid-stream": func(w http.ResponseWriter, _ *http.Request) {
			sessionapi.Write(w, &pb.Session{Id: "s1", State: "forming"})
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		err := controlOf(t, handler).Watch(t.Context(), "s1", func(*pb.Session) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "went away") || strings.Contains(err.Error(), "EOF") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestControl_whenTheServerIsNewer_readsWhatItKnows(t *testing.T) {
	c := controlOf(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"id":"s1","state":"dreaming","of":[{"electric":"sheep"}]}`)
		fmt.Fprintln(w, `{"id":"s1","state":"ready","since":12}`)
	})
	var seen []string
	err := c.Watch(t.Context(), "s1", func(now *pb.Session) error {
		seen = append(seen, now.State)
		return nil
	})
	if err != nil || strings.Join(seen, " ") != "dreaming ready" {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestControl_whenTheServerIsOlder_saysWhatItLacks(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	err := c.Post(t.Context(), "teleport", &pb.SessionRequest{}, &pb.Session{})
	if err == nil || !strings.Contains(err.Error(), "/api/session/teleport") || !strings.Contains(err.Error(), "older") {
		t.Errorf("%v", err)
	}
}

func TestControl_whenTheSidecarIsOlder_saysWhatToUpdate(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	err := c.Post(t.Context(), "plan", &pb.PlanRequest{}, &pb.PlanReply{})
	if err == nil || err.Error() != sidecar.TooOld {
		t.Errorf("%v", err)
	}
}

func TestControl_whenAPersonHasHadEnough_passesThatOn(t *testing.T) {
	enough := errors.New("enough")
	c := controlOf(t, func(w http.ResponseWriter, _ *http.Request) { sessionapi.Write(w, &pb.Session{Id: "s1"}) })
	if err := c.Watch(t.Context(), "s1", func(*pb.Session) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func TestControl_only_wantsOneSession(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}}).Client
	if session, err := c.Only(t.Context()); err != nil || session.Id != "s1" {
		t.Errorf("%v, %v", session, err)
	}
	none := servertest.Start(t, &fake.Sidecar{}).Client
	if _, err := none.Only(t.Context()); err == nil || !strings.Contains(err.Error(), "session create") {
		t.Errorf("%v", err)
	}
}
