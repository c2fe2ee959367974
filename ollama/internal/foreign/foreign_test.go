package foreign

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"kafila/ollama/pb"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"4 GB for 学习, naïve – ½ 🐫":              "4 GB for 学习, naïve – ½ 🐫",
		"\x1b[2J\x1b[HReady":                    "�[2J�[HReady",
		"\x1b]0;title\x07 rest":                 "�]0;title� rest",
		"one\nReady. Chat with: rm -rf\r\n~":    "one Ready. Chat with: rm -rf  ~",
		"a\tb\vc\fd":                            "a b c d",
		"del\x7f csi\u009b31m nel\u0085x":       "del� csi�31m nel x",
		"ann\u202egpj.exe \u2066x\u2069":        "ann�gpj.exe �x�",
		"in\u200bvis\u200dible \ufeffbom\u00ad": "in�vis�ible �bom�",
		"line\u2028par\u2029end":                "line par end",
		"tag\U000e0041":                         "tag�",
		"broken \x9b \xff utf-8":                "broken � � utf-8",
		"nul\x00":                               "nul�",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := Lines("one\x1b[1m\ntwo\r\n"); got != "one�[1m\ntwo \n" {
		t.Errorf("%q", got)
	}
}

func TestLine_ofWhatever_isHarmlessAndStaysSo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := hostile(random)
		line := Line(text)
		if !harmless(line) || strings.Contains(line, "\n") || Line(line) != line || !utf8.ValidString(line) {
			t.Fatalf("%q: %q", text, line)
		}
		if lines := Lines(text); !harmless(strings.ReplaceAll(lines, "\n", "")) || strings.Count(lines, "\n") != strings.Count(text, "\n") {
			t.Fatalf("%q: %q", text, lines)
		}
	}
}

func TestClean_reachesEveryText(t *testing.T) {
	const bad, good = "a\x1b[2J\nb", "a�[2J b"
	session := &pb.Session{
		Id: bad, Failure: bad, RendezvousNote: bad, Vehicle: &pb.StubModel{Name: bad, Parameters: map[string]float64{bad: 1}},
		Members: []*pb.Member{{Name: bad, Doing: bad, Device: bad}}, Hops: []*pb.Hop{{To: bad}},
		PlanJson: `{"reason":"a\u001b[2J\nb","notes":["a\u001b[2J\nb"],"cost_s":0.10}`, ContextTokens: 7,
	}
	Clean(session)
	want := &pb.Session{
		Id: good, Failure: good, RendezvousNote: good, Vehicle: &pb.StubModel{Name: good, Parameters: map[string]float64{good: 1}},
		Members: []*pb.Member{{Name: good, Doing: good, Device: good}}, Hops: []*pb.Hop{{To: good}},
		PlanJson: `{"cost_s":0.10,"notes":["a�[2J b"],"reason":"a�[2J b"}`, ContextTokens: 7,
	}
	if !proto.Equal(session, want) {
		t.Errorf("%v", session)
	}
	plan := &pb.PlanReply{
		AlternativesJson: map[string]string{bad: `{"reason":"a\u001b[2J\nb"}`}, DownloadBytes: map[string]uint64{bad: 3},
	}
	Clean(plan)
	if !proto.Equal(plan, &pb.PlanReply{
		AlternativesJson: map[string]string{good: `{"reason":"a�[2J b"}`}, DownloadBytes: map[string]uint64{good: 3},
	}) {
		t.Errorf("%v", plan)
	}
	doctor := &pb.DoctorReply{Text: bad, Findings: []*pb.Finding{{Sentence: bad}}, DirectWith: []string{bad}}
	Clean(doctor)
	if !proto.Equal(doctor, &pb.DoctorReply{Text: "a�[2J\nb", Findings: []*pb.Finding{{Sentence: good}}, DirectWith: []string{good}}) {
		t.Errorf("%v", doctor)
	}
	words := &pb.GenerateReply{Text: bad}
	if Clean(words); words.Text != bad {
		t.Errorf("the model's answer was changed: %q", words.Text)
	}
}

func TestJSON_staysAsItIsWhereItIsHarmless(t *testing.T) {
	for text, want := range map[string]string{
		`{ "b": 1.50, "a": [1e-9, "ok"] }`: `{ "b": 1.50, "a": [1e-9, "ok"] }`,
		"{\n  \"pretty\": true\n}":         "{\n  \"pretty\": true\n}",
		"no JSON\x1b[2J":                   "no JSON�[2J",
		`{"a":1} {"b":"\u001b"}`:           `{"a":1} {"b":"\u001b"}`, // is read by nobody as JSON, and harmless as text
		"":                                 "",
	} {
		if got := JSON(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		written, err := json.Marshal(map[string]any{hostile(random): []string{hostile(random)}})
		if err != nil {
			t.Fatal(err)
		}
		var read map[string][]string
		if err := json.Unmarshal([]byte(JSON(string(written))), &read); err != nil {
			t.Fatal(err)
		}
		for key, values := range read {
			if !harmless(key) || !harmless(values[0]) {
				t.Fatalf("%q: %q", written, read)
			}
		}
	}
}

func harmless(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
	})
}

// hostile is text of which most characters are some that should not reach a terminal.
func hostile(random *rand.Rand) string {
	var text strings.Builder
	for range random.IntN(40) {
		switch random.IntN(5) {
		case 0:
			text.WriteRune(rune(random.IntN(0xa0)))
		case 1:
			text.WriteRune(rune(0x2000 + random.IntN(0x70)))
		case 2:
			text.WriteByte(byte(random.IntN(256)))
		case 3:
			text.WriteString("\x1b[2J")
		default:
			text.WriteRune(rune(random.IntN(unicode.MaxRune)))
		}
	}
	return text.String()
}
