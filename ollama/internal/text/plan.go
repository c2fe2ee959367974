package text

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"kafila/ollama/pb"
)

// Plan is the plan for people, with its alternatives and what each member will download. A model that isn't
// admitted is an error, which says what would be.
func Plan(reply *pb.PlanReply) (string, error) {
	p, err := readPlan(reply.PlanJson)
	if err != nil {
		return "", err
	}
	asked, err := readProblem(reply.ProblemJson)
	if err != nil {
		return "", err
	}
	if !p.Admitted {
		return "", errors.New(refusalText(p))
	}
	others, err := alternativesText(asked, reply.AlternativesJson)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	table(&text, planRows(p, asked, reply.DownloadBytes))
	text.WriteString("\n" + weightsText(reply) + expectedText(p, asked))
	if len(p.Idle) > 0 {
		text.WriteByte('\n')
		table(&text, idleRows(p))
	}
	text.WriteString(others)
	return text.String(), nil
}

// weightsText tells in what form the weights are held, and what to know of the model.
func weightsText(reply *pb.PlanReply) string {
	var lines []string
	if reply.Quantization != "" {
		lines = append(lines, "Weights: "+reply.Quantization+".")
	}
	lines = append(lines, Notices(reply.Notices)...)
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func refusalText(p *plan) string {
	text := "no plan: " + p.Reason
	if len(p.Suggestions) > 0 {
		text += "\nEach of these alone would do:\n  - " + strings.Join(p.Suggestions, "\n  - ")
	}
	return text
}

// planRows has one row for each stage, with the hop that leaves it.
func planRows(p *plan, asked *problem, downloads map[string]uint64) []string {
	usable := map[string]float64{}
	for _, member := range asked.Members {
		usable[member.Name] = member.MemoryBytes
	}
	rows := []string{"MEMBER\tROLE\tBLOCKS\tMEMORY\tDOWNLOADS\tA TOKEN\tHOP TO\tPATH\tONE WAY"}
	for i, s := range p.Stages {
		role, next := "stage", hop{}
		if s.Member == p.Head {
			role = "head"
		}
		if i < len(p.Hops) {
			next = p.Hops[i]
		}
		rows = append(rows, strings.Join([]string{
			s.Member, role, blocks(s.Start, s.End), memoryOf(s.ResidentBytes, usable[s.Member]),
			size(float64(downloads[s.Member])), p.cost(s.CostS), orDash(next.To), orDash(next.Path), known(next.CostS),
		}, "\t"))
	}
	return rows
}

// cost shows a stage's time; where nobody measured seconds it is relative.
func (p *plan) cost(cost *float64) string {
	if cost != nil && *cost > 0 && p.Tier != measured {
		return fmt.Sprintf("%.1f×", *cost)
	}
	return known(cost)
}

// expectedText tells what the plan promises, and what that rests on.
func expectedText(p *plan, asked *problem) string {
	text := "Downloads are at most that: what a member has is not fetched again.\n\n"
	if p.ComputeS != nil && p.NetworkS != nil && p.CircuitS != nil {
		text += fmt.Sprintf("A token takes %s: %s of computing and %s on the way.\n",
			milliseconds(*p.CircuitS), milliseconds(*p.ComputeS), orNothing(*p.NetworkS))
	}
	text += "Expected: " + rates(p, max(asked.Concurrency, 1)) + "\n"
	if p.TTFTS != nil && asked.PromptTokens != nil {
		text += fmt.Sprintf("The first token of a prompt of %d tokens comes after %.2f s.\n", *asked.PromptTokens, *p.TTFTS)
	}
	text += basis(p, asked)
	for _, note := range p.Notes {
		text += "Note: " + note + ".\n"
	}
	return text
}

func orNothing(s float64) string {
	if s == 0 {
		return "nothing"
	}
	return milliseconds(s)
}

// rates tells the speed for one user and, where more are admitted, for all of them.
func rates(p *plan, concurrency uint32) string {
	switch {
	case p.TokensPerSOneUser == nil || *p.TokensPerSOneUser == 0:
		return "not known"
	case concurrency == 1:
		return rate(p.TokensPerSOneUser) + " alone, which is full load: one sequence at once"
	}
	text := fmt.Sprintf("%s alone, %s for %d at once", rate(p.TokensPerSOneUser), rate(p.TokensPerS), concurrency)
	if p.SequencesInOneStep > 1 {
		text += fmt.Sprintf(", %d of them in one step", p.SequencesInOneStep)
	}
	return text
}

// basis tells how the plan was found.
func basis(p *plan, asked *problem) string {
	costs := map[string]string{
		measured: "measured times", "arithmetic": "the members' arithmetic throughput", "working-set": "the members' memory",
	}[p.Tier]
	search := "exact search"
	if p.Search != "exact" {
		search = "a heuristic search, so a better one may exist"
	}
	text := fmt.Sprintf("Planned from %s by %s.\n", costs, search)
	if asked.Strategy != "" && asked.Strategy != "kafila" {
		text += fmt.Sprintf("Divided by the strategy %q, for comparison: \"kafila\" divides by cost.\n", asked.Strategy)
	}
	return text
}

// idleRows tells who holds no blocks, why, and what including each would cost.
func idleRows(p *plan) []string {
	rows := []string{"STANDS BY\tWITH IT\tWHY"}
	for _, one := range p.Idle {
		rows = append(rows, strings.Join([]string{one.Member, change(p.TokensPerS, one.TokensPerSWith), one.Why}, "\t"))
	}
	return rows
}

// change tells a rate and how it compares with another.
func change(from, to *float64) string {
	switch {
	case to == nil:
		return "–"
	case from == nil || *from == 0:
		return rate(to)
	}
	percent := math.Round(100 * (*to / *from - 1))
	if percent == 0 {
		return rate(to) + " (no change)"
	}
	return fmt.Sprintf("%s (%+.0f %%)", rate(to), percent)
}

// alternativesText compares the plans by objective; those that can't be are told in words.
func alternativesText(asked *problem, byObjective map[string]string) (string, error) {
	rows := []string{"IF BEST FOR\tRING, HEAD FIRST\tRELAYED\tA TOKEN\tALONE\tAT FULL LOAD"}
	var refused strings.Builder
	for _, objective := range slices.Sorted(maps.Keys(byObjective)) {
		p, err := readPlan(byObjective[objective])
		switch {
		case err != nil:
			return "", fmt.Errorf("%s: %w", objective, err)
		case p.Admitted:
			rows = append(rows, alternativeRow(objective, asked, p))
		default:
			fmt.Fprintf(&refused, "%s: no plan: %s\n", objective, p.Reason)
		}
	}
	if len(byObjective) == 0 {
		return "", nil
	}
	var text strings.Builder
	text.WriteByte('\n')
	table(&text, rows)
	return text.String() + refused.String(), nil
}

func alternativeRow(objective string, asked *problem, p *plan) string {
	if objective == asked.objective() {
		objective += " (this plan)"
	}
	ring := make([]string, len(p.Stages))
	for i, s := range p.Stages {
		ring[i] = fmt.Sprintf("%s %d", s.Member, s.End-s.Start)
	}
	return strings.Join([]string{
		objective, strings.Join(ring, ", "), relayed(p), known(p.CircuitS),
		rate(p.TokensPerSOneUser), rate(p.TokensPerS),
	}, "\t")
}

func relayed(p *plan) string {
	if len(p.Hops) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d hops", p.RelayedHops, len(p.Hops))
}

// objective is what was asked for, or the planner's default.
func (p *problem) objective() string {
	switch {
	case p.Objective != "":
		return p.Objective
	case p.Concurrency <= 1:
		return "latency"
	}
	return "throughput"
}
