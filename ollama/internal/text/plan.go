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

// Plan is the plan for people, with its alternatives and what each member will download, within width characters (0: as
// wide as it takes). A model that isn't admitted is an error, which says what would be.
func Plan(reply *pb.PlanReply, width int) (string, error) {
	p, asked, err := admitted(reply)
	if err != nil {
		return "", err
	}
	others, err := alternativesText(asked, reply.AlternativesJson, width)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	tableIn(&text, planRows(p, asked, reply.DownloadBytes), width)
	text.WriteString("\n" + sentences(weightsText(reply)+expectedText(p, asked), width))
	if len(p.Idle) > 0 {
		text.WriteByte('\n')
		tableIn(&text, idleRows(p), width)
	}
	text.WriteString(others)
	return text.String(), nil
}

// Division is how a session's blocks are divided, why so, and what the other objectives would give: what its host wants
// to know as soon as it is planned.
func Division(reply *pb.PlanReply, width int) (string, error) {
	p, asked, err := admitted(reply)
	if err != nil {
		return "", err
	}
	others, err := alternativesText(asked, reply.AlternativesJson, width)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The plan, made to be best for %s:\n\n", asked.objective())
	tableIn(&text, divisionRows(p, reply.DownloadBytes), width)
	text.WriteString("\n" + sentences("Expected: "+rates(p, max(asked.Concurrency, 1))+"\n"+reason(p, asked)+basis(p, asked)+notes(p), width))
	if len(p.Idle) > 0 {
		text.WriteByte('\n')
		tableIn(&text, idleRows(p), width)
	}
	text.WriteString(others + "\n" + sentences(toChoose, width) + "\n")
	return text.String(), nil
}

// Divisions is how the blocks are divided by the plan as it is (""), and by the one that is best for each objective; nil
// where that can't be read.
func Divisions(reply *pb.PlanReply) map[string][]*pb.Stage {
	p, _, err := admitted(reply)
	if err != nil {
		return nil
	}
	divisions := map[string][]*pb.Stage{"": p.division()}
	for objective, other := range reply.GetAlternativesJson() {
		if p, err := readPlan(other); err == nil && p.Admitted {
			divisions[objective] = p.division()
		}
	}
	return divisions
}

func (p *plan) division() []*pb.Stage {
	stages := make([]*pb.Stage, len(p.Stages))
	for i, s := range p.Stages {
		stages[i] = &pb.Stage{Member: s.Member, Start: s.Start, End: s.End}
	}
	return stages
}

// reason tells why the blocks are divided so.
func reason(p *plan, asked *problem) string {
	switch {
	case len(asked.Members) < 2:
		return ""
	case len(p.Stages) == 1:
		return fmt.Sprintf("Why: %s alone is quicker than any ring, where each hop takes time.\n", p.Head)
	}
	text := "Why: " + map[string]string{
		"latency":    "one answer at a time passes all stages and hops one after the other, so whoever computes a block soonest takes as many as it can hold",
		"throughput": "many answers are on their way at once, so the slowest stage counts as well as the whole way round",
		"paper":      "everybody takes part, and the slowest stage is as short as can be",
	}[asked.objective()]
	if len(asked.Require) > 0 {
		text += "; " + strings.Join(asked.Require, ", ") + " had to hold a part (--require)"
	}
	return text + ".\n" + blockTimes(p)
}

// blockTimes tells what a block takes on each member that holds some, where that was measured.
func blockTimes(p *plan) string {
	if p.Tier != measured {
		return ""
	}
	var times []string
	for _, s := range p.Stages {
		if s.CostS != nil && s.End > s.Start && s.Member != p.Head {
			times = append(times, fmt.Sprintf("%s on %s", milliseconds(*s.CostS/float64(s.End-s.Start)), s.Member))
		}
	}
	if len(times) == 0 {
		return ""
	}
	return "A block takes " + strings.Join(times, ", ") + "; the head also makes the tokens of what comes back.\n"
}

const toChoose = "To divide it among others: `ollama session leave`, then `ollama session create` with --require or --exclude."

// admitted reads a plan and its problem; one that isn't admitted is an error.
func admitted(reply *pb.PlanReply) (*plan, *problem, error) {
	p, err := readPlan(reply.GetPlanJson())
	if err != nil {
		return nil, nil, err
	}
	asked, err := readProblem(reply.GetProblemJson())
	if err == nil && !p.Admitted {
		err = errors.New(refusalText(p))
	}
	return p, asked, err
}

// divisionRows has one row for each stage: what it holds, fetches at most and takes.
func divisionRows(p *plan, downloads map[string]uint64) []string {
	rows := []string{"MEMBER\tBLOCKS\tMEMORY\tDOWNLOADS\tA TOKEN"}
	for _, s := range p.Stages {
		name := s.Member
		if name == p.Head {
			name += " (head)"
		}
		rows = append(rows, strings.Join([]string{
			name, blocks(s.Start, s.End), size(s.ResidentBytes), size(float64(downloads[s.Member])), p.cost(s.CostS),
		}, "\t"))
	}
	return rows
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
	rows := []string{"MEMBER\tROLE\tBLOCKS\tMEMORY\tDOWNLOADS\tA TOKEN" + split + "HOP TO\tPATH\tONE WAY"}
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
			size(float64(downloads[s.Member])), p.cost(s.CostS) + split + orDash(next.To), orDash(next.Path), known(next.CostS),
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
	return text + basis(p, asked) + notes(p)
}

func notes(p *plan) (text string) {
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
func alternativesText(asked *problem, byObjective map[string]string, width int) (string, error) {
	rows := []string{"IF BEST FOR\tRING, HEAD FIRST" + split + "RELAYED\tA TOKEN\tALONE\tAT FULL LOAD"}
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
	tableIn(&text, rows, width)
	return text.String() + sentences(refused.String(), width), nil
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
		objective, strings.Join(ring, ", ") + split + relayed(p), known(p.CircuitS),
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
