package text

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"kafila/ollama/pb"
)

// large is a session of so many members, each with whatever is told of one, called as machines are.
func large(count int) *pb.Session {
	session := &pb.Session{
		Id: "0123456789abcdef", Code: "4711-behave-myself-decline", WholeCode: "4711-behave-myself-decline@198.51.100.123:38329#6aviinzr5n6z3x35c6c2",
		Model: "mlx-community/Qwen3-235B-A22B-Instruct-2507-4bit", State: "ready", Doing: "ready", Joining: "locked",
		Host: "marthas-macbook-pro-0", Self: "marthas-macbook-pro-1", ContextTokens: 131072, Concurrency: 16, ActiveSequences: 11,
		RendezvousNote: "the rendezvous runs on this machine, and the router forwards a port to it, as far as can be told: members elsewhere write @198.51.100.123:38329#6aviinzr5n6z3x35c6c2 after the code's words",
		BetterPlan:     "marthas-macbook-pro-2 would hold 11 blocks more, which gives 12.5 tokens/s in place of 9.8 (+27 %)",
		Limited:        []string{"marthas-macbook-pro-3 lends 12 GB of 64 GB"},
		Vehicle:        &pb.StubModel{Name: "kafila/session/qwen3-235b-a22b-instruct-2507-4bit:4711", Quantization: "4-bit, groups of 64"},
		Activity:       &pb.Activity{TokensPerS: 9.5, Waiting: 5, Answering: []*pb.Answering{{Member: "marthas-macbook-pro-0", Doing: "reading", PromptTokens: 120000}}},
	}
	drawn := map[string]any{"admitted": true, "tier": "measured", "search": "heuristic", "head": "marthas-macbook-pro-0", "tokens_per_s_one_user": 12.5, "tokens_per_s": 40.0, "batch": 4}
	var stages, hops, idle []map[string]any
	for i := range count {
		name, next := fmt.Sprintf("marthas-macbook-pro-%d", i), fmt.Sprintf("marthas-macbook-pro-%d", (i+1)%count)
		session.Members = append(session.Members, &pb.Member{
			Name: name, Device: "gpu: NVIDIA GeForce RTX 4070 Ti SUPER", UsableMemoryBytes: 123e9, Present: i%3 != 0, Doing: "fetching",
			FetchedBytes: 123e9, FetchTotalBytes: 456e9, FetchRateBytesPerS: 12.5e6, Kafila: fmt.Sprintf("0.1.0.dev%d+g386f6c2cc", i),
			WaitsFor: "waits for marthas-macbook-pro-0 to give it 123 GB of weights", IfLost: "goes on after about 120 s, for which 123 GB are fetched",
		})
		start, end := uint32(12*i), uint32(12*i+12)
		session.Stages = append(session.Stages, &pb.Stage{Member: name, Start: start, End: end, Head: i == 0, ResidentBytes: 123e9, PredictedS: 0.1234, MeasuredS: 0.1345})
		session.Hops = append(session.Hops, &pb.Hop{From: name, To: next, Path: "relay", PredictedS: 0.123, MeasuredS: 0.234, PredictedPath: "direct", RttS: 0.345, FormedS: 1.5})
		stages = append(stages, map[string]any{"member": name, "start": start, "end": end, "cost_s": 0.1234, "resident_bytes": 123e9})
		hops = append(hops, map[string]any{"from": name, "to": next, "path": "relay", "cost_s": 0.1234})
		idle = append(idle, map[string]any{"member": name + "-beside", "why": "slower than it helps: each token would wait for its link of 230 ms", "tokens_per_s_with": 9.5})
	}
	drawn["stages"], drawn["hops"], drawn["idle"] = stages, hops, idle
	text, err := json.Marshal(drawn)
	if err != nil {
		panic(err)
	}
	session.PlanJson = string(text)
	return session
}

func TestTexts_ofALargeSession_fitAnOrdinaryTerminal(t *testing.T) {
	for _, count := range []int{1, 3, 8, 64} {
		session := large(count)
		reply := &pb.PlanReply{
			PlanJson: session.PlanJson, AlternativesJson: map[string]string{"latency": session.PlanJson, "paper": session.PlanJson, "throughput": session.PlanJson},
			ProblemJson:   `{"concurrency": 16, "prompt_tokens": 512, "objective": "throughput", "require": ["marthas-macbook-pro-0"], "members": [{"name": "a"}, {"name": "b"}]}`,
			DownloadBytes: map[string]uint64{"marthas-macbook-pro-0": 123e9}, Quantization: session.Vehicle.Quantization, Notices: []string{session.RendezvousNote},
		}
		plan, err := Plan(reply, 80)
		if err != nil {
			t.Fatal(err)
		}
		division, err := Division(reply, 80)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"status": Status(session, 80), "plan": plan, "division": division} {
			for _, line := range strings.Split(text, "\n") {
				if utf8.RuneCountInString(line) > 80 && !strings.Contains(line, session.WholeCode) { // which can't be broken
					t.Errorf("%s of %d: %d characters: %s", name, count, utf8.RuneCountInString(line), line)
				}
			}
		}
	}
}
