package text

import (
	"strings"
	"testing"

	"kafila/ollama/pb"
)

func TestPlan_showsStagesAlternativesAndWhoStandsBy(t *testing.T) {
	reply := &pb.PlanReply{
		PlanJson: `{"admitted": true, "tier": "measured", "search": "exact", "head": "A", "tokens_per_s": 40.5, "tokens_per_s_one_user": 12.5,
			"compute_s": 0.06, "network_s": 0.02, "circuit_s": 0.08, "batch": 2, "ttft_s": 1.5, "relayed_hops": 1, "notes": ["B is slow today"],
			"stages": [{"member": "A", "start": 0, "end": 12, "cost_s": 0.01, "resident_bytes": 3000000000},
			           {"member": "B", "start": 12, "end": 36, "cost_s": null, "resident_bytes": 5000000000}],
			"hops": [{"from": "A", "to": "B", "path": "direct", "cost_s": 0.001}, {"from": "B", "to": "A", "path": "relay", "cost_s": null}],
			"idle": [{"member": "D", "why": "slower than it helps", "tokens_per_s_with": 30.0},
			         {"member": "E", "why": "can't hold one block", "tokens_per_s_with": null}]}`,
		ProblemJson: `{"concurrency": 4, "prompt_tokens": 512, "strategy": "kafila", "objective": "throughput", "members": [{"name": "A", "memory_bytes": 8000000000}, {"name": "B", "memory_bytes": 16000000000}]}`,
		AlternativesJson: map[string]string{
			"latency":    `{"admitted": true, "stages": [{"member": "A", "start": 0, "end": 36}], "circuit_s": 0.0667, "tokens_per_s_one_user": 15.0}`,
			"throughput": `{"admitted": true, "stages": [{"member": "A", "start": 0, "end": 12}, {"member": "B", "start": 12, "end": 36}], "hops": [{}, {}], "relayed_hops": 1}`,
			"paper":      `{"admitted": false, "reason": "too large"}`,
		},
		DownloadBytes: map[string]uint64{"A": 2e9},
		Quantization:  "8-bit, made here from BF16",
		Notices:       []string{"its window ends"},
	}
	text, err := Plan(reply, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"A", "head", "0–11 (12)", "3 GB of 8 GB", "2 GB", "10.0 ms", "B", "direct", "1.0 ms"},
		{"B", "stage", "12–35 (24)", "5 GB of 16 GB", "0 B", "–", "A", "relay", "–"},
		{"80.0 ms: 60.0 ms of computing and 20.0 ms on the way"},
		{"12.5 tokens/s alone", "40.5 tokens/s for 4 at once, 2 of them in one step"},
		{"512 tokens comes after 1.50 s"},
		{"measured times by exact search"},
		{"Note: B is slow today."},
		{"Weights: 8-bit, made here from BF16."},
		{"Note: its window ends."},
		{"D", "30.0 tokens/s (-26 %)", "slower than it helps"},
		{"E", "–", "can't hold one block"},
		{"latency", "A 36", "–", "66.7 ms", "15.0 tokens/s", "–"},
		{"throughput (this plan)", "A 12, B 24", "1 of 2 hops"},
		{"paper: no plan: too large"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
}

func TestPlan_whenNotAdmitted_isAnErrorThatSaysWhatHelps(t *testing.T) {
	text, err := Plan(&pb.PlanReply{PlanJson: `{"admitted": false, "reason": "needs 41 GB", "suggestions": ["a smaller context"]}`}, 0)
	if text != "" || err == nil || err.Error() != "no plan: needs 41 GB\nEach of these alone would do:\n  - a smaller context" {
		t.Errorf("%s, %v", text, err)
	}
}

func TestPlan_whenItCantBeRead_fails(t *testing.T) {
	const good = `{"admitted": true}`
	for name, reply := range map[string]*pb.PlanReply{
		"plan":        {PlanJson: "nonsense"},
		"problem":     {PlanJson: good, ProblemJson: "nonsense"},
		"alternative": {PlanJson: good, AlternativesJson: map[string]string{"paper": "nonsense"}},
	} {
		if text, err := Plan(reply, 0); err == nil || !strings.Contains(err.Error(), "can't be read") {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
}

func TestPlan_whenSecondsAreNotMeasured_showsNone(t *testing.T) {
	text, err := Plan(&pb.PlanReply{
		PlanJson: `{"admitted": true, "tier": "arithmetic", "search": "heuristic", "head": "A", "notes": ["B's step time is not measured"],
			"stages": [{"member": "A", "start": 0, "end": 1, "cost_s": 12.0}, {"member": "B", "start": 1, "end": 36, "cost_s": 13.5}]}`,
		ProblemJson: `{"concurrency": 1}`,
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"A", "head", "0 (1)", "12.0×"},
		{"Expected: not known"},
		{"arithmetic throughput", "heuristic"},
		{"Note: B's step time"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
	if strings.Contains(text, " ms") || strings.Contains(text, "IF BEST FOR") {
		t.Errorf("more is told than known:\n%s", text)
	}
}

func TestProblem_objective_isThePlannersDefault(t *testing.T) {
	for want, asked := range map[string]problem{
		"latency": {Concurrency: 1}, "throughput": {Concurrency: 2}, "paper": {Concurrency: 2, Objective: "paper"},
	} {
		if got := asked.objective(); got != want {
			t.Errorf("%s: %s", want, got)
		}
	}
}
