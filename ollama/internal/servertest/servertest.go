// Package servertest gives tests a server: the session routes in front of a fake sidecar and a fake Ollama store. It
// imports server, control, seal and fake, and only tests import it.
package servertest

import (
	"context"
	"net/http/httptest"
	"net/url"
	"testing"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/server"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/pb"
)

// Token is the owner's.
const Token = "the owner's token"

// A Server serves the session routes.
type Server struct {
	URL    *url.URL
	Client *control.Client
	Ollama *fake.Ollama
	Kill   func() // ends the sidecar at once
}

// Start serves the session routes in front of s, with a store that forgets nothing.
func Start(t *testing.T, s *fake.Sidecar) *Server {
	t.Helper()
	socket, kill := fake.Start(t, s)
	conn, err := sidecar.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	side := always{pb.NewSidecarClient(conn)}
	memory, ollama := fake.StartOllama(t)
	models := server.NewSessionModels(t.Context(), side.client, ollama, &server.Scheduler{}, seal.New(), "")
	serving := httptest.NewServer(server.Routes(side, models, server.Access{Owner: Token}))
	t.Cleanup(serving.Close)
	address, err := url.Parse(serving.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &Server{URL: address, Client: control.New(address, Token), Ollama: memory, Kill: kill}
}

// always is a sidecar that is taken for running, whether it is or not.
type always struct{ client pb.SidecarClient }

func (a always) Await(context.Context) error { return nil }

func (a always) Client() pb.SidecarClient { return a.client }
