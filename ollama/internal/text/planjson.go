package text

import (
	"encoding/json"
	"fmt"
)

// What `kafila-plan` prints; null means not known. Times and rates are of one decode step.
type plan struct {
	Admitted           bool     `json:"admitted"`
	Reason             string   `json:"reason"`
	Suggestions        []string `json:"suggestions"`
	Tier               string   `json:"tier"`
	Search             string   `json:"search"`
	Head               string   `json:"head"`
	Stages             []stage  `json:"stages"`
	Hops               []hop    `json:"hops"`
	RelayedHops        int      `json:"relayed_hops"`
	ComputeS           *float64 `json:"compute_s"`
	NetworkS           *float64 `json:"network_s"`
	CircuitS           *float64 `json:"circuit_s"`
	TokensPerS         *float64 `json:"tokens_per_s"`
	TokensPerSOneUser  *float64 `json:"tokens_per_s_one_user"`
	SequencesInOneStep int      `json:"batch"`
	TTFTS              *float64 `json:"ttft_s"`
	Idle               []idle   `json:"idle"`
	Notes              []string `json:"notes"`
}

type stage struct {
	Member        string   `json:"member"`
	Start         uint32   `json:"start"`
	End           uint32   `json:"end"`
	CostS         *float64 `json:"cost_s"`
	ResidentBytes float64  `json:"resident_bytes"`
}

type hop struct {
	To    string   `json:"to"`
	Path  string   `json:"path"`
	CostS *float64 `json:"cost_s"`
}

type idle struct {
	Member         string   `json:"member"`
	Why            string   `json:"why"`
	TokensPerSWith *float64 `json:"tokens_per_s_with"`
}

// The part of the planner's input that a person wants beside its output.
type problem struct {
	Concurrency  uint32   `json:"concurrency"`
	Strategy     string   `json:"strategy"`
	Require      []string `json:"require"`
	Objective    string   `json:"objective"`
	PromptTokens *int     `json:"prompt_tokens"`
	Members      []struct {
		Name        string  `json:"name"`
		MemoryBytes float64 `json:"memory_bytes"`
	} `json:"members"`
}

const measured = "measured" // the planner's best tier: costs are seconds

func readPlan(text string) (*plan, error) {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("the plan can't be read: %w", err)
	}
	return &p, nil
}

func readProblem(text string) (*problem, error) {
	var p problem
	if text == "" {
		return &p, nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, fmt.Errorf("the plan's problem can't be read: %w", err)
	}
	return &p, nil
}
