package text

import (
	"strings"
	"testing"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

func TestSessions_ofAClosedSession_tellsWhy(t *testing.T) {
	gone := &pb.Session{Code: "7-ocean-velvet-lamp@h:1", State: sessionapi.Closed, Failure: "mini was removed from the session"}
	if got := Sessions([]*pb.Session{gone}); !strings.Contains(got, "7-ocean-velvet-lamp ended: mini was removed") {
		t.Errorf("%s", got)
	}
}

func TestSessions_ofASleepingSession_tellsForWhomItWaitsAndHowItIsAsked(t *testing.T) {
	asleep := &pb.Session{
		Code: "7-ocean-velvet-lamp", State: sessionapi.Sleeping, Doing: "asleep: waits for mini",
		Vehicle: &pb.StubModel{Name: "kafila/session/qwen3:1"}, Members: []*pb.Member{{Name: "mini"}},
	}
	got := Sessions([]*pb.Session{asleep})
	for _, wanted := range []string{"7-ocean-velvet-lamp is asleep: waits for mini", "kafila/session/qwen3:1", "sleeping"} {
		if !strings.Contains(got, wanted) {
			t.Errorf("%q is not in\n%s", wanted, got)
		}
	}
	if got := Status(asleep, 0); !strings.Contains(got, "waits for mini") {
		t.Errorf("%s", got)
	}
}
