package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

func TestTrace_ofTheOnlySession_isText_orALineForEachRecord(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}}).Client
	printed := printedBy(t, false, func(s screen) error { return trace(t.Context(), c, &pb.TracesRequest{}, s) })
	if !strings.HasPrefix(printed, "Request 7 ") {
		t.Errorf("%s", printed)
	}
	printed = printedBy(t, true, func(s screen) error { return trace(t.Context(), c, &pb.TracesRequest{Session: "s1"}, s) })
	var record struct {
		Stages []struct{ Member string }
	}
	if err := json.Unmarshal([]byte(printed), &record); err != nil || record.Stages[1].Member != "mini" || strings.Count(printed, "\n") != 1 {
		t.Errorf("%v: %s", err, printed)
	}
}

func TestTrace_ofARequestThatIsNotKept_fails(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	err := trace(t.Context(), c, &pb.TracesRequest{Session: "s1", Request: "8"}, nowhere)
	if err == nil || !strings.Contains(err.Error(), `no record of a request "8"`) {
		t.Errorf("%v", err)
	}
}
