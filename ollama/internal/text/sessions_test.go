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
