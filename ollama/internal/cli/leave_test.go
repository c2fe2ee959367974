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

const shortage = "the session ends for the others without laptop: 2.0 GB too little"

func TestLeave_whenTheOthersCantGoOn_isAskedForOnceMore(t *testing.T) {
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	for name, row := range map[string]struct {
		yes  bool
		want string
	}{
		"nobody to ask": {false, "ollama session leave --yes 7-ocean-velvet-lamp"},
		"said before":   {true, ""},
	} {
		sidecar := &fake.Sidecar{KeptBack: shortage, Sessions: []*pb.Session{fake.ReadySession()}}
		c := servertest.Start(t, sidecar).Client
		var said bytes.Buffer
		err := leave(t.Context(), c, fake.ReadySession(), row.yes, screen{in: nobody, out: &said, aside: &said})
		if row.want == "" && (err != nil || !strings.Contains(said.String(), "has left")) {
			t.Errorf("%s: %v, %s", name, err, said.String())
		}
		if row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), shortage)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLeave_whenAnswersRun_saysThatItTakesAWhile(t *testing.T) {
	session := fake.ReadySession()
	session.ActiveSequences = 1
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{session}}).Client
	var said bytes.Buffer
	if err := leave(t.Context(), c, session, false, screen{out: &said, aside: &said}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "for a minute at most") {
		t.Error(said.String())
	}
}
