package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
		asking := newChooser(screen{in: strings.NewReader(typed), out: io.Discard, aside: &aside}, servertest.Start(t, sidecar).Client)
		asking.shown = map[string][]*pb.Stage{"": {}, "latency": {}, "throughput": {}}
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

// planOf is a plan of two members, of which the first has so many of four blocks.
func planOf(head uint32) string {
	return fmt.Sprintf(`{"admitted": true, "head": "desk", "stages": [{"member": "desk", "start": 0, "end": %d}, {"member": "mini", "start": %d, "end": 4}]}`, head, head)
}

func divided(head uint32) []*pb.Stage {
	return []*pb.Stage{{Member: "desk", End: head}, {Member: "mini", Start: head, End: 4}}
}

// typing is what somebody types, line by line; each is made up when it is read.
type typing []func() string

func (lines *typing) Read(p []byte) (int, error) {
	if len(*lines) == 0 {
		return 0, io.EOF
	}
	line := (*lines)[0]()
	*lines = (*lines)[1:]
	return copy(p, line), nil
}

func sameDivisions(got, want [][]*pb.Stage) bool {
	return slices.EqualFunc(got, want, func(one, other []*pb.Stage) bool {
		return slices.EqualFunc(one, other, func(a, b *pb.Stage) bool { return proto.Equal(a, b) })
	})
}

func TestChooser_whenAPlanIsTaken_namesTheDivisionThatWasShownWithIt(t *testing.T) {
	for typed, want := range map[string][]*pb.Stage{"\n": divided(1), "latency\n": divided(3), "throughput\n": divided(1)} {
		sidecar := &fake.Sidecar{Planned: &pb.PlanReply{
			PlanJson: planOf(1), AlternativesJson: map[string]string{"latency": planOf(3), "throughput": planOf(1), "paper": `{"admitted": false}`},
		}}
		asking := newChooser(screen{in: strings.NewReader(typed), out: io.Discard, aside: io.Discard}, servertest.Start(t, sidecar).Client)
		asking.tell(t.Context(), "s1")
		asking.listen(t.Context(), "s1")
		if seen := sidecar.Seen(); !sameDivisions(seen, [][]*pb.Stage{want}) {
			t.Errorf("%q: %v", typed, seen)
		}
	}
}

func TestChooser_whenAnObjectiveHasNoPlan_saysSoAndAsksAgain(t *testing.T) {
	sidecar := &fake.Sidecar{Planned: &pb.PlanReply{PlanJson: planOf(1), AlternativesJson: map[string]string{"paper": `{"admitted": false}`}}}
	var aside bytes.Buffer
	asking := newChooser(screen{in: strings.NewReader("paper\n"), out: io.Discard, aside: &aside}, servertest.Start(t, sidecar).Client)
	asking.tell(t.Context(), "s1")
	asking.listen(t.Context(), "s1")
	if chosen := sidecar.Chosen(); len(chosen) > 0 || !strings.Contains(aside.String(), "no plan that is best for paper") {
		t.Errorf("%q: %s", chosen, &aside)
	}
}

func TestChooser_whenAnotherPlanStandsByThen_saysSoAndTakesTheOneThatIsShownNext(t *testing.T) {
	sidecar := &fake.Sidecar{
		Planned:  &pb.PlanReply{PlanJson: planOf(1)},
		Unchosen: []error{status.Error(codes.FailedPrecondition, "another plan stands by now")},
	}
	var aside bytes.Buffer
	asking := newChooser(screen{out: io.Discard, aside: &aside}, servertest.Start(t, sidecar).Client)
	asking.listening = true // in this test's own course
	showAnew := func() {
		asking.tell(t.Context(), "s1")
		asking.ask(t.Context(), "s1")
	}
	asking.typed = bufio.NewReader(&typing{
		func() string { return "\n" },
		func() string {
			sidecar.Planned = &pb.PlanReply{PlanJson: planOf(2)}
			showAnew()
			return "\n"
		},
	})
	showAnew()
	asking.listen(t.Context(), "s1")
	if seen := sidecar.Seen(); !sameDivisions(seen, [][]*pb.Stage{divided(1), divided(2)}) {
		t.Errorf("%v", seen)
	}
	if !strings.Contains(aside.String(), "Error: another plan stands by now") || strings.Contains(aside.String(), "session start") {
		t.Error(&aside)
	}
}

func TestChooser_whenItIsAskedAboutAnotherPlanWhileAChoiceIsCarriedOut_goesOnListening(t *testing.T) {
	asking := newChooser(screen{in: strings.NewReader(""), out: io.Discard, aside: io.Discard}, nil)
	asking.listening, asking.shown = true, map[string][]*pb.Stage{"": {}}
	answered, _ := asking.last()
	asking.ask(t.Context(), "s1")
	if asking.ends(answered) {
		t.Error("nobody listens to the second question")
	}
	if again, _ := asking.last(); !asking.ends(again) || asking.listening {
		t.Error("somebody listens though nothing is asked")
	}
}

func TestChooser_whenThePlanCantBeShown_asksNothing(t *testing.T) {
	sidecar := &fake.Sidecar{}
	var aside bytes.Buffer
	asking := newChooser(screen{in: strings.NewReader("\n"), out: io.Discard, aside: &aside}, servertest.Start(t, sidecar).Client)
	asking.tell(t.Context(), "s1")
	asking.ask(t.Context(), "s1")
	if chosen := sidecar.Chosen(); len(chosen) > 0 || !strings.Contains(aside.String(), "`ollama session plan` shows it") {
		t.Errorf("%q: %s", chosen, &aside)
	}
}
