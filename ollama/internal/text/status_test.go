package text

import (
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/pb"
)

func TestStatus_showsTheRing(t *testing.T) {
	session := fake.ReadySession()
	session.LastTraceJson = `{"tokens_per_s": 11.8, "ttft_s": 0.63, "circuits_per_token": 0.4, "guesses": 25, "guesses_right": 20, "guesses_ahead": 4, "guesses_drafted": 7, "exact_tokens": 8, "why_no_guesses": ""}`
	session.Members = []*pb.Member{
		{Name: "laptop", Role: "host", Present: true, Doing: "ready", UsableMemoryBytes: 16e9, Device: "gpu: Apple M3"},
		{Name: "mini", Role: "member", FetchedBytes: 50, FetchTotalBytes: 100},
	}
	session.Stages = []*pb.Stage{
		{Member: "laptop", Start: 0, End: 12, Head: true, ResidentBytes: 3.1e9, PredictedS: 0.0121, MeasuredS: 0.0129},
		{Member: "mini", Start: 12, End: 36, ResidentBytes: 5e9, PredictedS: 0.02},
	}
	session.Hops = []*pb.Hop{{From: "laptop", To: "mini", Path: "direct", PredictedS: 0.0004}, {From: "mini", To: "laptop", Path: "relay", PredictedPath: "direct"}}
	session.Host, session.Joining, session.BetterPlan = "laptop", "locked", "another division would give 15.0 instead of 12.3 tokens/s (+22%)"
	session.PlanJson = `{"tier": "measured", "tokens_per_s": 12.34, "tokens_per_s_one_user": 8.5, "idle": [{"member": "old", "why": "too slow", "tokens_per_s_with": 6.17}]}`
	text := Status(session, 0)
	for _, line := range [][]string{
		{"laptop (head)", "0–11 (12)", "3.1 GB of 16 GB", "12.1 ms", "12.9 ms", "mini", "direct", "0.4 ms"},
		{"mini", "12–35", "5 GB", "20.0 ms", "–", "laptop", "relay (expected direct)"},
		{"laptop (here)", "host", "gpu: Apple M3", "16 GB", "ready"},
		{"mini", "away, 50 %"},
		{"Expected: 8.5 tokens/s alone, 12.3 tokens/s for 2 at once"},
		{"Last answer: 11.8 tokens/s", "0.63 s", "0.40 times round the ring", "20 of 25 guesses were right, 4 ran ahead, 7 are the draft model's"},
		{"Guesses", "exact up to 8 tokens at once"},
		{"Host", "laptop (this machine)"},
		{"Model", "org/model (BF16)"},
		{"Joining", "locked", "ollama session unlock"},
		{"Better plan", "another division"},
		{"old", "6.2 tokens/s (-50 %)", "too slow"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
}

func TestStatus_whenNothingIsGuessed_saysWhy(t *testing.T) {
	session := fake.ReadySession()
	for trace, told := range map[string]string{
		`{"exact_tokens": 1, "why_no_guesses": "this session was created without them"}`: "off: this session was created without them",
		`{"exact_tokens": 1, "why_no_guesses": ""}`:                                      "where they lead clearly",
	} {
		session.LastTraceJson = trace
		if text := Status(session, 80); !hasLineWith(text, []string{"Guesses", told}) {
			t.Errorf("%s gives\n%s", trace, text)
		}
	}
	for _, older := range []string{"", `{"tokens_per_s": 3}`} {
		session.LastTraceJson = older
		if text := Status(session, 80); strings.Contains(text, "Guesses") {
			t.Errorf("%q gives\n%s", older, text)
		}
	}
}

func TestStatus_whenMembersRunDifferentVersions_saysWhoseIsWhich(t *testing.T) {
	session := fake.ReadySession()
	session.Members = []*pb.Member{{Name: "ada", Kafila: "0.3.0"}, {Name: "bob"}, {Name: "cyd", Kafila: "0.3.0"}}
	if text := Status(session, 0); !hasLineWith(text, []string{"Kafila", "0.3.0"}) || strings.Contains(text, "(ada") {
		t.Error(text)
	}
	session.Members[1].Kafila = "0.2.1"
	if text := Status(session, 0); !hasLineWith(text, []string{"Kafila", "0.3.0 (ada, cyd), 0.2.1 (bob)"}) {
		t.Error(text)
	}
	session.Members = nil
	if text := Status(session, 0); strings.Contains(text, "Kafila") {
		t.Error(text)
	}
}

func TestStatus_whenItIsKnownWhatALossWouldMean_saysSoOfEachMember(t *testing.T) {
	session := fake.ReadySession()
	session.Members = []*pb.Member{
		{Name: "laptop", Role: "host", Present: true, Doing: "ready", IfLost: "goes on after about 12 s"},
		{Name: "mini", Role: "member", Present: true, Doing: "ready", IfLost: "can't go on: 3.1 GB too little"},
		{Name: "new", Role: "member", Present: true, Doing: "measuring"},
	}
	text := Status(session, 0)
	for _, line := range [][]string{
		{"DOING", "IF LOST"}, {"laptop", "goes on after about 12 s"}, {"mini", "can't go on: 3.1 GB too little"}, {"new", "–"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
	session.Members[0].IfLost, session.Members[1].IfLost = "", ""
	if strings.Contains(Status(session, 0), "IF LOST") {
		t.Error("what is not known is told")
	}
}

func TestStatus_whileForming_leavesOutWhatIsNotKnown(t *testing.T) {
	text := Status(&pb.Session{
		Id: "s1", State: "forming", Doing: "waiting for 2 more members", Host: "laptop", Self: "mini",
		Vehicle: &pb.StubModel{Name: "kafila/session/model:7"},
	}, 0)
	if !hasLineWith(text, []string{"forming: waiting for 2 more members"}) || !hasLineWith(text, []string{"Host", "laptop"}) {
		t.Error(text)
	}
	for _, word := range []string{"STAGE", "Run as", "Better plan", "this machine"} {
		if strings.Contains(text, word) {
			t.Errorf("%s is told:\n%s", word, text)
		}
	}
}

func TestStatus_whenThePlanCantBeRead_tellsWhatTheSessionDoes(t *testing.T) {
	session := fake.ReadySession()
	session.ExpectedTokensPerS, session.PlanJson = 12.34, "nonsense"
	session.Stages = []*pb.Stage{{Member: "laptop", End: 36, Head: true, PredictedS: 0.0121}}
	text := Status(session, 0)
	if !hasLineWith(text, []string{"laptop (head)", "0–35", "12.1 ms"}) || !hasLineWith(text, []string{"Expected: 12.3 tokens/s"}) {
		t.Error(text)
	}
}

func TestPromptText_tellsOnlyOfWhatIsFarOff(t *testing.T) {
	for _, c := range []struct{ took, planned float64 }{{1.4, 1}, {0.15, 0.06}, {9, 0}, {0.5, 2}} {
		if text := promptText(c.took, c.planned); text != "" {
			t.Errorf("%v: %q", c, text)
		}
	}
	if text := promptText(2.5, 1); !strings.Contains(text, "2.50 s where 1.00 s were planned") {
		t.Errorf("%q", text)
	}
}
