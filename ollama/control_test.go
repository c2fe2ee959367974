package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"kafila/ollama/pb"
)

// controlOf is the command line's end of a server that answers by handler.
func controlOf(t *testing.T, handler http.HandlerFunc) *control {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &control{base: address}
}

func TestControl_whenTheServerIsAnotherOllama_saysSo(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no such page":   http.NotFound,
		"not for posts":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"a foreign JSON": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); fmt.Fprint(w, `{"detail":"none"}`) },
	} {
		err := controlOf(t, handler).post(t.Context(), "doctor", &pb.DoctorRequest{}, &pb.DoctorReply{})
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
	c := &control{base: &url.URL{Scheme: "http", Host: listener.Addr().String()}}
	err = c.get(t.Context(), "list", nil, &pb.ListSessionsReply{})
	if err == nil || !strings.Contains(err.Error(), "no Ollama server answers at "+c.base.Host) || strings.Contains(err.Error(), "Get ") {
		t.Errorf("%v", err)
	}
}

func TestControl_whenTheServerGoesAway_saysSo(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"before it answers": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"in mid-stream": func(w http.ResponseWriter, _ *http.Request) {
			writeMessage(w, &pb.Session{Id: "s1", State: "forming"})
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		err := controlOf(t, handler).watch(t.Context(), "s1", func(*pb.Session) error { return nil })
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
	err := c.watch(t.Context(), "s1", func(now *pb.Session) error {
		seen = append(seen, now.State)
		return nil
	})
	if err != nil || strings.Join(seen, " ") != "dreaming ready" {
		t.Errorf("%v, %v", seen, err)
	}
}

func TestControl_whenTheServerIsOlder_saysWhatItLacks(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	err := c.post(t.Context(), "teleport", &pb.SessionRequest{}, &pb.Session{})
	if err == nil || !strings.Contains(err.Error(), "/api/session/teleport") || !strings.Contains(err.Error(), "older") {
		t.Errorf("%v", err)
	}
}

func TestControl_whenTheSidecarIsOlder_saysWhatToUpdate(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	err := c.post(t.Context(), "plan", &pb.PlanRequest{}, &pb.PlanReply{})
	if err == nil || err.Error() != sidecarTooOld {
		t.Errorf("%v", err)
	}
}

func TestControl_whenAPersonHasHadEnough_passesThatOn(t *testing.T) {
	enough := errors.New("enough")
	c := controlOf(t, func(w http.ResponseWriter, _ *http.Request) { writeMessage(w, &pb.Session{Id: "s1"}) })
	if err := c.watch(t.Context(), "s1", func(*pb.Session) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
}

func TestControl_only_wantsOneSession(t *testing.T) {
	c, _, _ := controlled(t, &scripted{sessions: []*pb.Session{readySession()}})
	if session, err := c.only(t.Context()); err != nil || session.Id != "s1" {
		t.Errorf("%v, %v", session, err)
	}
	none, _, _ := controlled(t, &scripted{})
	if _, err := none.only(t.Context()); err == nil || !strings.Contains(err.Error(), "session create") {
		t.Errorf("%v", err)
	}
}
