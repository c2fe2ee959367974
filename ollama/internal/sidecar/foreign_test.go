package sidecar

import (
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/internal/fake"
	"kafila/ollama/pb"
)

const (
	bad  = "mini\x1b[2J\x1b[H is lost\nReady. Chat with: x"
	good = "mini�[2J�[H is lost Ready. Chat with: x"
)

func clientOf(t *testing.T, s *fake.Sidecar) pb.SidecarClient {
	t.Helper()
	socket, _ := fake.Start(t, s)
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewSidecarClient(conn)
}

func TestDial_whatTheSidecarPassesOn_isHarmless(t *testing.T) {
	session := &pb.Session{Id: "s1", Doing: bad, Members: []*pb.Member{{Name: bad}}}
	client := clientOf(t, &fake.Sidecar{Sessions: []*pb.Session{session}, Drops: true})
	list, err := client.ListSessions(t.Context(), &pb.ListSessionsRequest{})
	if err != nil || list.Sessions[0].Doing != good || list.Sessions[0].Members[0].Name != good {
		t.Errorf("a call: %v, %v", list, err)
	}
	stream, err := client.WatchSession(t.Context(), &pb.SessionRequest{Session: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	if watched, err := stream.Recv(); err != nil || watched.Doing != good {
		t.Errorf("a stream: %v, %v", watched, err)
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("its end: %v", err)
	}
}

func TestDial_whatTheSidecarRefusesWith_isHarmlessAndKeepsItsCode(t *testing.T) {
	client := clientOf(t, &fake.Sidecar{Replies: []string{"\x1b[1mbold\x1b[0m\n"}, Fails: status.Error(codes.Unavailable, bad)})
	stream, err := client.Generate(t.Context(), &pb.GenerateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := stream.Recv(); err != nil || reply.Text != "\x1b[1mbold\x1b[0m\n" {
		t.Errorf("the model's own words: %q, %v", reply.GetText(), err)
	}
	_, err = stream.Recv()
	if code, sentence := Explain(err); code != 503 || sentence != good {
		t.Errorf("%d %q", code, sentence)
	}
	_, err = client.Kick(t.Context(), &pb.KickRequest{Member: "\x1b[2J"})
	if code, _ := Explain(err); code != 404 {
		t.Errorf("%v", err)
	}
}
