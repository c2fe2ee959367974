package cli

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

// planning is the host's session in a state, by the plan of an epoch.
func planning(state, doing string, epoch uint32) *pb.Session {
	return &pb.Session{
		Id: "s1", State: state, Doing: state, Self: "desk", Host: "desk", Epoch: epoch,
		Members: []*pb.Member{{Name: "desk", Doing: doing, Present: true}},
		Stages:  []*pb.Stage{{Member: "desk", End: 2, Head: true}},
	}
}

type silent struct{ shown []string }

func (s *silent) show(now *pb.Session) { s.shown = append(s.shown, now.State) }

func (*silent) stop() {}

func TestPlanned_whenAPlanCanBeChosen_tellsThatOneAndIsSilentUntilItIs(t *testing.T) {
	var told, asked []uint32
	below := &silent{}
	display := &planned{
		display: below,
		tell:    func(now *pb.Session) { told = append(told, now.Epoch) },
		ask:     func(now *pb.Session) { asked = append(asked, now.Epoch) },
	}
	for _, now := range []*pb.Session{
		planning("linking", "waiting", 1), planning("linking", "waiting", 2), planning("linking", "choosing", 2), planning("linking", "choosing", 2),
		planning("linking", "choosing", 3), planning("linking", "waiting", 4), planning("fetching", "fetching", 4), planning("ready", "ready", 4),
	} {
		display.show(now)
	}
	if want := []uint32{2, 3}; !slices.Equal(told, want) || !slices.Equal(asked, want) {
		t.Errorf("told %v, asked %v", told, asked)
	}
	if want := []string{"linking", "linking", "linking", "fetching", "ready"}; !slices.Equal(below.shown, want) {
		t.Errorf("shown %v", below.shown)
	}
}

func TestPlanned_whenNobodyIsAsked_tellsTheFirstPlanOnce(t *testing.T) {
	var told []uint32
	display := &planned{display: &silent{}, tell: func(now *pb.Session) { told = append(told, now.Epoch) }}
	for _, now := range []*pb.Session{planning("linking", "waiting", 1), planning("linking", "choosing", 2), planning("ready", "ready", 2)} {
		display.show(now)
	}
	if want := []uint32{1}; !slices.Equal(told, want) {
		t.Errorf("told %v", told)
	}
}

func TestChooser_takesWhatIsTyped_andAsksAgainForWhatItDoesNotKnow(t *testing.T) {
	for typed, row := range map[string]struct {
		chosen []string
		asked  int // how often the question is put again
		said   string
	}{
		"\n":                         {[]string{""}, 0, ""},
		" Yes \n":                    {[]string{""}, 0, ""},
		"THROUGHPUT\n":               {[]string{"throughput"}, 0, ""},
		"faster\nwhat?\nlatency\n\n": {[]string{"latency"}, 2, ""},
		"faster\n":                   {nil, 1, "session start"},
		"":                           {nil, 0, "session start"},
		"q\n":                        {nil, 0, ""},
	} {
		sidecar := &fake.Sidecar{}
		var aside bytes.Buffer
		asking := chooser{screen: screen{in: strings.NewReader(typed), out: io.Discard, aside: &aside}, client: servertest.Start(t, sidecar).Client}
		asking.listen(t.Context(), "s1")
		if chosen := sidecar.Chosen(); !slices.Equal(chosen, row.chosen) {
			t.Errorf("%q: %q", typed, chosen)
		}
		if again := strings.Count(aside.String(), "Nothing is fetched yet"); again != row.asked || !strings.Contains(aside.String(), row.said) {
			t.Errorf("%q: %s", typed, &aside)
		}
		if left := typed == "q\n"; sidecar.Left() != left {
			t.Errorf("%q: left %t", typed, !left)
		}
	}
}
