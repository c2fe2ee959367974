package main

import (
	"context"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/pb"
)

// A scripted is a sidecar whose sessions and answers a test sets.
type scripted struct {
	pb.UnimplementedSidecarServer

	mu        sync.Mutex
	sessions  []*pb.Session // each watch gives all of them in turn, and then waits
	drops     bool          // a watch ends instead of waiting
	replies   []string      // chunks of an answer
	fails     error         // after the chunks, instead of done
	hangs     bool          // after the chunks, until cancelled
	asked     *pb.GenerateRequest
	cancelled chan struct{}
}

func (s *scripted) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Version: "test", Pid: uint32(os.Getpid())}, nil
}

func (s *scripted) CreateSession(_ context.Context, r *pb.CreateSessionRequest) (*pb.Session, error) {
	if r.Model == "" {
		return nil, status.Error(codes.InvalidArgument, "name a model")
	}
	return &pb.Session{Id: "s1", Code: "7-ocean-velvet-lamp", State: "forming", Model: r.Model}, nil
}

func (s *scripted) NewCode(_ context.Context, r *pb.SessionRequest) (*pb.Session, error) {
	return &pb.Session{Id: r.Session, Code: "7-new-brass-kite", Joining: "open"}, nil
}

func (s *scripted) Lock(_ context.Context, r *pb.LockRequest) (*pb.Session, error) {
	return &pb.Session{Id: r.Session, Joining: map[bool]string{true: "locked", false: "open"}[r.Locked]}, nil
}

func (s *scripted) Kick(_ context.Context, r *pb.KickRequest) (*pb.Session, error) {
	if r.Member != "mini" {
		return nil, status.Errorf(codes.NotFound, "%q is not a member of this session", r.Member)
	}
	return &pb.Session{Id: r.Session, Code: "7-new-brass-kite"}, nil
}

func (s *scripted) Doctor(_ context.Context, r *pb.DoctorRequest) (*pb.DoctorReply, error) {
	if r.Rendezvous == "nonsense" {
		return nil, status.Error(codes.InvalidArgument, "nonsense is no address")
	}
	return &pb.DoctorReply{Text: "! UDP  is blocked\n", Udp: "blocked", Findings: []*pb.Finding{{Topic: "UDP", Level: "problem"}}}, nil
}

func (s *scripted) ListSessions(context.Context, *pb.ListSessionsRequest) (*pb.ListSessionsReply, error) {
	return &pb.ListSessionsReply{Sessions: s.sessions[max(0, len(s.sessions)-1):]}, nil
}

func (s *scripted) WatchSession(r *pb.SessionRequest, stream grpc.ServerStreamingServer[pb.Session]) error {
	if r.Session != "s1" {
		return status.Error(codes.NotFound, "there is no session "+r.Session)
	}
	for _, session := range s.sessions {
		if err := stream.Send(session); err != nil {
			return err
		}
	}
	if !s.drops {
		<-stream.Context().Done()
	}
	return nil
}

func (s *scripted) Generate(r *pb.GenerateRequest, stream grpc.ServerStreamingServer[pb.GenerateReply]) error {
	s.mu.Lock()
	s.asked = r
	s.mu.Unlock()
	for _, text := range s.replies {
		if err := stream.Send(&pb.GenerateReply{Text: text}); err != nil {
			return err
		}
	}
	if s.hangs {
		<-stream.Context().Done()
		close(s.cancelled)
		return stream.Context().Err()
	}
	if s.fails != nil {
		return s.fails
	}
	return stream.Send(&pb.GenerateReply{
		Done: true, DoneReason: pb.DoneReason_DONE_REASON_LENGTH, PromptTokens: 7, PromptS: 0.5, OutputTokens: 3, OutputS: 1.5,
	})
}

// startScripted serves s on a unix socket and returns the socket's path and a way to end it at once.
func startScripted(t *testing.T, s pb.SidecarServer) (socket string, kill func()) {
	t.Helper()
	folder, err := os.MkdirTemp("", "kafila-test-")
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(folder, "s.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterSidecarServer(server, s)
	go server.Serve(listener)
	t.Cleanup(func() {
		server.Stop()
		os.RemoveAll(folder)
	})
	return socket, server.Stop
}

// runningSidecar is a sidecar, as routes see it, in front of s.
func runningSidecar(t *testing.T, s pb.SidecarServer) (*sidecar, func()) {
	t.Helper()
	socket, kill := startScripted(t, s)
	conn, err := dialSidecar(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &sidecar{socket: socket, conn: conn, client: pb.NewSidecarClient(conn), now: up, changed: make(chan struct{})}, kill
}

// runTestSidecar is the process that a test starts: "die" ends at once, "serve" answers until its input ends, and
// "linger" doesn't mind that.
func runTestSidecar(args []string) {
	behaviour, args := args[0], args[1:]
	flags := flag.NewFlagSet("test-sidecar", flag.ExitOnError)
	socket := flags.String("socket", "", "")
	flags.String("data", "", "")
	flags.Parse(args)
	if behaviour == "die" {
		os.Exit(3)
	}
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		os.Exit(4)
	}
	server := grpc.NewServer()
	pb.RegisterSidecarServer(server, &scripted{})
	go server.Serve(listener)
	io.Copy(io.Discard, os.Stdin)
	if behaviour == "linger" {
		time.Sleep(time.Hour)
	}
}

// a session that is ready, for tests that need one
func readySession() *pb.Session {
	return &pb.Session{
		Id: "s1", Code: "7-ocean-velvet-lamp", State: ready, Model: "org/model", Self: "laptop", Host: "laptop", Concurrency: 2, ContextTokens: 4096,
		Vehicle: &pb.StubModel{
			Name: "kafila/session/model:7", Architecture: "qwen3", ContextLength: 4096, EmbeddingLength: 576,
			ParameterCount: 134515008, Quantization: "BF16", Parser: "kafila-tools", Parameters: map[string]float64{"temperature": 0.2},
		},
	}
}

// hasLineWith is true if one line of the text has all the words, in this order.
func hasLineWith(text string, words []string) bool {
	for _, line := range strings.Split(text, "\n") {
		rest := line
		found := true
		for _, word := range words {
			_, after, ok := strings.Cut(rest, word)
			if rest = after; !ok {
				found = false
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}
