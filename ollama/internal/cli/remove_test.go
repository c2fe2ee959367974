package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

func TestSessionOfModel_findsItHoweverItIsWritten(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}}).Client
	for name, want := range map[string]bool{
		fake.ModelName: true, "KAFILA/Session/model:7": true, "https://kafila/session/model:7": true,
		"kafila/session/model:8": false, "model:7": false, "llama3": false, "": false,
	} {
		session, err := sessionOfModel(t.Context(), c, name)
		if err != nil || (session != nil) != want {
			t.Errorf("%s: %v, %v", name, session, err)
		}
	}
}

func TestLeaveInstead_withoutTerminal_saysHowToLeave(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	var out bytes.Buffer
	err = leaveInstead(t.Context(), c, fake.ReadySession(), screen{in: nobody, out: &out, aside: &out})
	if err == nil || !strings.Contains(err.Error(), "ollama session leave 7-ocean-velvet-lamp") || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
