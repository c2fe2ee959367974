package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kafila/ollama/pb"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "12GB": 12e9, "12g": 12e9, "1.5 GB": 1.5e9, "12GiB": 12 << 30, "800MB": 800e6, "64k": 64e3, "4096": 4096, "1TB": 1e12,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"much", "-1GB", "12XB", "GB", "12 12"} {
		if _, err := parseBytes(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestModelArgument(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("models/mine", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("models/mine/config.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs("models/mine")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"Qwen/Qwen3-8B": "Qwen/Qwen3-8B", "models/mine": folder, "./models/mine": folder, folder: folder,
	} {
		if got, err := modelArgument(given); err != nil || got != want {
			t.Errorf("%s: %s, %v", given, got, err)
		}
	}
	if _, err := modelArgument("./models/none"); err == nil {
		t.Error("a folder without a model was accepted")
	}
}

func TestChanges_tellWhoCameWhoLeftAndWhatIsFetched(t *testing.T) {
	here := func(name string, fetched, total uint64) *pb.Member {
		return &pb.Member{Name: name, Present: true, FetchedBytes: fetched, FetchTotalBytes: total}
	}
	one := &pb.Session{Self: "a", MembersWanted: 2, Doing: "waiting for 1 more member", Members: []*pb.Member{here("a", 0, 0)}}
	two := &pb.Session{Self: "a", MembersWanted: 2, Doing: "fetching", Members: []*pb.Member{here("a", 0, 5e6), here("b", 0, 0)}}
	three := &pb.Session{Self: "a", MembersWanted: 2, Doing: "fetching", Members: []*pb.Member{here("a", 5e6, 5e6), {Name: "b"}}}
	for i, row := range []struct {
		before, now *pb.Session
		want        []string
	}{
		{nil, one, []string{"a (this machine) joined: 1 of 2 members", "waiting for 1 more member"}},
		{one, two, []string{"b joined: 2 of 2 members", "fetching", "a fetches 5 MB"}},
		{two, three, []string{"b is away", "a has its weights"}},
		{three, three, nil},
		{nil, readySession(), nil},
	} {
		if got := changes(row.before, row.now); !slices.Equal(got, row.want) {
			t.Errorf("step %d: %q", i, got)
		}
	}
}

func TestAgree_withoutTerminal_wantsYes(t *testing.T) {
	offer := &pb.Offer{Host: "laptop", Model: "org/model", LendMemoryBytes: 4e9, DownloadBytes: 3e8, MembersPresent: 2, MembersWanted: 3}
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if err := agree(offer, false, nobody, io.Discard); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("%v", err)
	}
	if err := agree(offer, true, nobody, io.Discard); err != nil {
		t.Error(err)
	}
	for _, word := range []string{"laptop", "org/model", "4 GB", "300 MB", "2 of 3"} {
		if !strings.Contains(terms(offer), word) {
			t.Errorf("the terms don't tell %s: %s", word, terms(offer))
		}
	}
}

func TestConfirm_onlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "n\n": false, "yesterday\n": false, "": false} {
		if err := confirm(strings.NewReader(answer), &bytes.Buffer{}); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestStatusText_showsTheRing(t *testing.T) {
	session := readySession()
	session.ExpectedTokensPerS, session.LastTraceJson = 12.34, `{"tokens_per_s": 11.8, "ttft_s": 0.63}`
	session.Members = []*pb.Member{
		{Name: "laptop", Role: "host", Present: true, Doing: "ready", UsableMemoryBytes: 16e9, Device: "gpu: Apple M3"},
		{Name: "mini", Role: "member", FetchedBytes: 50, FetchTotalBytes: 100},
	}
	session.Stages = []*pb.Stage{
		{Member: "laptop", Start: 0, End: 12, Head: true, ResidentBytes: 3.1e9, PredictedS: 0.0121, MeasuredS: 0.0129},
		{Member: "mini", Start: 12, End: 36, ResidentBytes: 5e9, PredictedS: 0.02},
	}
	session.Hops = []*pb.Hop{{From: "laptop", To: "mini", Path: "direct", PredictedS: 0.0004}, {From: "mini", To: "laptop", Path: "relay"}}
	text := statusText(session)
	for _, line := range [][]string{
		{"laptop (head)", "0–11", "3.1 GB", "12.1 ms", "12.9 ms", "mini", "direct", "0.4 ms"},
		{"mini", "12–35", "5 GB", "20.0 ms", "–", "laptop", "relay"},
		{"laptop (here)", "host", "gpu: Apple M3", "16 GB", "ready"},
		{"mini", "away, 50 %"},
		{"12.3 tokens/s", "11.8 tokens/s", "0.63 s"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
}

func TestPlanText_showsStagesAlternativesAndWhoStandsBy(t *testing.T) {
	reply := &pb.PlanReply{
		PlanJson: `{"admitted": true, "tier": "measured", "search": "exact", "head": "A", "tokens_per_s": 40.5, "tokens_per_s_one_user": 12.5,
			"stages": [{"member": "A", "start": 0, "end": 12, "cost_s": 0.01, "resident_bytes": 3000000000},
			           {"member": "B", "start": 12, "end": 36, "cost_s": null, "resident_bytes": 5000000000}],
			"hops": [{"from": "A", "to": "B", "path": "direct", "cost_s": 0.001}, {"from": "B", "to": "A", "path": "relay", "cost_s": null}],
			"idle": [{"member": "D", "why": "slower than it helps", "tokens_per_s_with": 30.0}]}`,
		ProblemJson: `{"concurrency": 4, "members": [{"name": "A", "memory_bytes": 8000000000}, {"name": "B", "memory_bytes": 16000000000}]}`,
		AlternativesJson: map[string]string{
			"latency": `{"admitted": true, "head": "A", "stages": [{"member": "A"}], "tokens_per_s_one_user": 15.0}`,
			"paper":   `{"admitted": false, "reason": "too large"}`,
		},
		DownloadBytes: map[string]uint64{"A": 2e9},
	}
	text, err := planText(reply)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"A", "head", "0–11", "3 GB", "8 GB", "2 GB", "10.0 ms", "B", "direct", "1.0 ms"},
		{"B", "stage", "12–35", "5 GB", "16 GB", "0 B", "–", "A", "relay", "–"},
		{"12.5 tokens/s alone", "40.5 tokens/s for 4 at once"},
		{"D stands by: slower than it helps", "30.0 tokens/s"},
		{"latency", "A", "15.0 tokens/s", "not known"},
		{"paper", "–"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
}

func TestPlanText_whenNotAdmitted_saysWhyAndWhatHelps(t *testing.T) {
	text, err := planText(&pb.PlanReply{PlanJson: `{"admitted": false, "reason": "needs 41 GB", "suggestions": ["a smaller context"]}`})
	if err != nil || !strings.Contains(text, "needs 41 GB") || !strings.Contains(text, "- a smaller context") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := planText(&pb.PlanReply{PlanJson: "nonsense"}); err == nil {
		t.Error("nonsense was shown")
	}
}

func TestNames_findsASessionByWhatPeopleSay(t *testing.T) {
	session := readySession()
	for name, want := range map[string]bool{"s1": true, "7": true, "7-ocean-velvet-lamp": true, "": false, "8": false, "org/model": false} {
		if names(session, name) != want {
			t.Errorf("%q", name)
		}
	}
	session.Code = ""
	if names(session, "") {
		t.Error("an empty name matched a session without code")
	}
}

func hasLineWith(text string, words []string) bool {
	for _, line := range strings.Split(text, "\n") {
		rest := line
		found := true
		for _, word := range words {
			_, after, ok := strings.Cut(rest, word)
			if rest = after; !ok {
				found = false
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}
