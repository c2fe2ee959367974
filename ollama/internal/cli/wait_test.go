package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

func TestUntilReady_endsWithReady_orWithWhatWentWrong(t *testing.T) {
	failed := &pb.Session{Id: "s1", State: sessionapi.Closed, Failure: "model needs 41.2 GB, the members offer 36.0 GB", FailureCode: "FAILED_PRECONDITION"}
	for name, row := range map[string]struct {
		sessions []*pb.Session
		want     string
	}{
		"ready":   {[]*pb.Session{{Id: "s1", State: "linking"}, fake.ReadySession()}, ""},
		"failed":  {[]*pb.Session{{Id: "s1", State: "linking"}, failed}, failed.Failure},
		"dropped": {[]*pb.Session{{Id: "s1", State: "linking"}}, "before it was ready"},
	} {
		c := servertest.Start(t, &fake.Sidecar{Sessions: row.sessions, Drops: true}).Client
		var shown bytes.Buffer
		session, err := untilReady(t.Context(), c, "s1", jsonLines{&shown})
		switch {
		case row.want == "" && (err != nil || session.Vehicle.Name != fake.ModelName):
			t.Errorf("%s: %v, %v", name, session, err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: %v", name, err)
		case strings.Count(shown.String(), "\n") != len(row.sessions):
			t.Errorf("%s: shown %s", name, shown.String())
		}
	}
}

func TestUntilReady_whenInterrupted_tellsHowToLeave(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{{Id: "s1", State: "linking"}}}).Client
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := untilReady(ctx, c, "s1", jsonLines{io.Discard}); !errors.As(err, new(Interrupted)) || !strings.Contains(err.Error(), "session leave s1") {
		t.Errorf("%v", err)
	}
}
