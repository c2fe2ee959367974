// Package fake has small real stand-ins for tests: a sidecar whose answers a test sets, and as much of Ollama's API as
// the server's store needs. It imports only pb.
package fake

import (
	"context"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/pb"
)

// Record is that of a request which two members answered, as `session trace` gets it.
const Record = `{"request":"7","epoch":3,"ended":"stop","ended_at":1790000000.5,"prompt_tokens":12,"output_tokens":5,` +
	`"replays":0,"queue_s":0.5,"ttft_s":2,"prefill_s":1.5,"decode_s":2,"tokens_per_s":2,"circuit_s":0.5,"network_s":0.1,` +
	`"predicted_circuit_s":0.4,"stages":[{"member":"anna","predicted_s":0.2,"measured_s":0.25,"rows":1},` +
	`{"member":"mini","predicted_s":0.1,"measured_s":0.15,"rows":1}],"hops":[{"from":"anna","to":"mini","path":"direct",` +
	`"predicted_s":0.02,"measured_s":0.05,"bytes":20480},{"from":"mini","to":"anna","path":"relay","predicted_s":null,` +
	`"measured_s":0.05,"bytes":400}]}`

// A Sidecar is one whose sessions and answers a test sets.
type Sidecar struct {
	pb.UnimplementedSidecarServer

	Named     []*pb.NamedModel
	Weights   []*pb.KeptWeights
	Sessions  []*pb.Session // each watch gives all of them in turn, and then waits
	Drops     bool          // a watch ends instead of waiting
	Replies   []string      // chunks of an answer
	Headway   []*pb.Headway // before them
	Embedding []float32     // in place of an answer
	Fails     error         // after the chunks, instead of done
	Hangs     bool          // after the chunks, until cancelled
	KeptBack  string        // why leaving has to be asked for twice
	Card      *pb.ModelCard // of any session's model; nil: it can't be read
	Planned   *pb.PlanReply // nil: there is no plan
	Unchosen  []error       // what the first choices of a plan are refused with
	Cancelled chan struct{} // closed when an answer that hangs was cancelled

	mu     sync.Mutex
	asked  *pb.GenerateRequest
	chosen []string
	seen   [][]*pb.Stage
	left   bool
}

func (s *Sidecar) Hello(context.Context, *pb.HelloRequest) (*pb.HelloReply, error) {
	return &pb.HelloReply{Version: "test", Pid: uint32(os.Getpid())}, nil
}

func (s *Sidecar) CreateSession(_ context.Context, r *pb.CreateSessionRequest) (*pb.Session, error) {
	if r.Model == "" {
		return nil, status.Error(codes.InvalidArgument, "name a model")
	}
	return &pb.Session{Id: "s1", Code: "7-ocean-velvet-lamp", State: "forming", Model: r.Model}, nil
}

func (s *Sidecar) NewCode(_ context.Context, r *pb.SessionRequest) (*pb.Session, error) {
	return &pb.Session{Id: r.Session, Code: "7-new-brass-kite", Joining: "open"}, nil
}

func (s *Sidecar) Lock(_ context.Context, r *pb.LockRequest) (*pb.Session, error) {
	return &pb.Session{Id: r.Session, Joining: map[bool]string{true: "locked", false: "open"}[r.GetLocked()]}, nil
}

func (s *Sidecar) Kick(_ context.Context, r *pb.KickRequest) (*pb.Session, error) {
	if r.Member != "mini" {
		return nil, status.Errorf(codes.NotFound, "%q is not a member of this session", r.Member)
	}
	return &pb.Session{Id: r.Session, Code: "7-new-brass-kite"}, nil
}

func (s *Sidecar) Doctor(_ context.Context, r *pb.DoctorRequest) (*pb.DoctorReply, error) {
	if r.Rendezvous == "nonsense" {
		return nil, status.Error(codes.InvalidArgument, "nonsense is no address")
	}
	return &pb.DoctorReply{Text: "! UDP  is blocked\n", Udp: "blocked", Findings: []*pb.Finding{{Topic: "UDP", Level: "problem"}}}, nil
}

func (s *Sidecar) Metrics(context.Context, *pb.MetricsRequest) (*pb.MetricsReply, error) {
	return &pb.MetricsReply{Text: "kafila_sequences 2.0\n"}, nil
}

func (s *Sidecar) Traces(_ context.Context, r *pb.TracesRequest) (*pb.TracesReply, error) {
	if r.Request != "" && r.Request != "7" {
		return nil, status.Errorf(codes.NotFound, "no record of a request %q is kept here", r.Request)
	}
	return &pb.TracesReply{RecordsJson: []string{Record}}, nil
}

func (s *Sidecar) ListSessions(context.Context, *pb.ListSessionsRequest) (*pb.ListSessionsReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return &pb.ListSessionsReply{}, nil
	}
	return &pb.ListSessionsReply{Sessions: s.Sessions[max(0, len(s.Sessions)-1):]}, nil
}

func (s *Sidecar) WatchSession(r *pb.SessionRequest, stream grpc.ServerStreamingServer[pb.Session]) error {
	if r.Session != "s1" {
		return status.Error(codes.NotFound, "there is no session "+r.Session)
	}
	for _, session := range s.Sessions {
		if err := stream.Send(session); err != nil {
			return err
		}
	}
	if !s.Drops {
		<-stream.Context().Done()
	}
	return nil
}

func (s *Sidecar) ShowModel(context.Context, *pb.SessionRequest) (*pb.ModelCard, error) {
	if s.Card == nil {
		return nil, status.Error(codes.Unavailable, "away")
	}
	return s.Card, nil
}

func (s *Sidecar) Replan(_ context.Context, r *pb.SessionRequest) (*pb.Session, error) {
	return &pb.Session{Id: r.Session, State: "planning"}, nil
}

func (s *Sidecar) Plan(context.Context, *pb.PlanRequest) (*pb.PlanReply, error) {
	if s.Planned == nil {
		return nil, status.Error(codes.FailedPrecondition, "not planned yet")
	}
	return s.Planned, nil
}

func (s *Sidecar) ChoosePlan(_ context.Context, r *pb.ChoosePlanRequest) (*pb.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chosen = append(s.chosen, r.Objective)
	s.seen = append(s.seen, r.Shown)
	if len(s.Unchosen) > 0 {
		refused := s.Unchosen[0]
		s.Unchosen = s.Unchosen[1:]
		return nil, refused
	}
	return &pb.Session{Id: r.Session, State: "fetching"}, nil
}

// Seen are the divisions that were seen by who chose.
func (s *Sidecar) Seen() [][]*pb.Stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Chosen are the objectives that plans were chosen by.
func (s *Sidecar) Chosen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chosen
}

// Left is true once a session was left.
func (s *Sidecar) Left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

func (s *Sidecar) SetReplanning(_ context.Context, r *pb.ReplanningRequest) (*pb.Session, error) {
	return &pb.Session{Id: r.Session, Replanning: r.Replanning}, nil
}

func (s *Sidecar) LeaveSession(_ context.Context, r *pb.LeaveRequest) (*pb.LeaveSessionReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.KeptBack != "" && !r.AtOnce {
		return &pb.LeaveSessionReply{KeptBack: s.KeptBack}, nil
	}
	s.left = true
	return &pb.LeaveSessionReply{}, nil
}

func (s *Sidecar) Generate(r *pb.GenerateRequest, stream grpc.ServerStreamingServer[pb.GenerateReply]) error {
	s.mu.Lock()
	s.asked = r
	s.mu.Unlock()
	for _, headway := range s.Headway {
		if err := stream.Send(&pb.GenerateReply{Headway: headway}); err != nil {
			return err
		}
	}
	for _, text := range s.Replies {
		if err := stream.Send(&pb.GenerateReply{Text: text}); err != nil {
			return err
		}
	}
	if s.Hangs {
		<-stream.Context().Done()
		close(s.Cancelled)
		return stream.Context().Err()
	}
	if s.Fails != nil {
		return s.Fails
	}
	return stream.Send(&pb.GenerateReply{
		Done: true, DoneReason: pb.DoneReason_DONE_REASON_LENGTH, PromptTokens: 7, PromptS: 0.5, OutputTokens: 3, OutputS: 1.5,
		Embedding: s.Embedding,
	})
}

// Asked is the last request for an answer.
func (s *Sidecar) Asked() *pb.GenerateRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// Start serves s on a unix socket and returns the socket's path and a way to end it at once.
func Start(t *testing.T, s pb.SidecarServer) (socket string, kill func()) {
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

// RunSidecar is a sidecar as a process of its own, which a test starts: "die" ends at once, "serve" answers until its
// input ends.
func RunSidecar(args []string) {
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
	pb.RegisterSidecarServer(server, &Sidecar{})
	go server.Serve(listener)
	io.Copy(io.Discard, os.Stdin)
}
