package text

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"kafila/ollama/pb"
)

// Status is a session for people: what it is, who is in it, and the ring with predicted beside measured times. It keeps
// within width characters, or takes what it needs where that is 0.
func Status(s *pb.Session, width int) string {
	var text strings.Builder
	tableIn(&text, aboutRows(s), width)
	text.WriteByte('\n')
	tableIn(&text, memberRows(s), width)
	if len(s.Stages) == 0 {
		return text.String()
	}
	p, err := readPlan(s.PlanJson)
	if err != nil {
		p = &plan{Tier: measured, TokensPerSOneUser: &s.ExpectedTokensPerS} // the session tells its stages itself
	}
	text.WriteByte('\n')
	tableIn(&text, ringRows(s, p), width)
	text.WriteString("\n" + sentences(speed(s, p), width) + "\n")
	if len(p.Idle) > 0 {
		text.WriteByte('\n')
		tableIn(&text, idleRows(p), width)
	}
	return text.String()
}

// aboutRows leaves out what there is nothing to say about.
func aboutRows(s *pb.Session) []string {
	rows := []string{
		"Session\t" + whole(s),
		"Model\t" + modelIn(s.Model, s.Vehicle.GetQuantization()),
		"State\t" + s.State + doing(s),
	}
	for _, row := range [][2]string{
		{"Host", host(s)},
		{"Joining", Joining(s.Joining)},
		{"Room", fmt.Sprintf("%d tokens of context, %d at once, %d now", s.ContextTokens, s.Concurrency, s.ActiveSequences)},
		{"Now", asked(s)},
		{"Run as", runAs(s)},
		{"Guesses", guesses(s)},
		{"Limited", strings.Join(s.Limited, "; ")},
		{"Elsewhere", elsewhere(s)},
		{"Rendezvous", s.RendezvousNote},
		{"Better plan", betterPlan(s)},
		{"Kafila", kafilas(s)},
	} {
		if row[1] != "" {
			rows = append(rows, row[0]+"\t"+row[1])
		}
	}
	return rows
}

// betterPlan is what there is, and who takes it.
func betterPlan(s *pb.Session) string {
	switch {
	case s.BetterPlan == "":
		return ""
	case s.Replanning == "ask":
		return s.BetterPlan + ": `ollama session replan` takes it"
	}
	return s.BetterPlan
}

// Replanning is what becomes of a better plan, as in "a better plan is …".
func Replanning(rule string) string {
	switch rule {
	case "ask":
		return "told of, and taken by `ollama session replan` only"
	case "never":
		return "not looked at"
	}
	return "taken by itself when it gains enough"
}

// kafilas are the versions that the members run: one for all, or whose is which.
func kafilas(s *pb.Session) string {
	var versions []string
	names := map[string][]string{}
	for _, m := range s.Members {
		if m.Kafila == "" {
			continue
		}
		if names[m.Kafila] == nil {
			versions = append(versions, m.Kafila)
		}
		names[m.Kafila] = append(names[m.Kafila], m.Name)
	}
	if len(versions) < 2 {
		return strings.Join(versions, "")
	}
	for i, version := range versions {
		versions[i] += " (" + strings.Join(names[version], ", ") + ")"
	}
	return strings.Join(versions, ", ")
}

// whole is a session's code as others need it, with the rendezvous' address, or its id where no code is known.
func whole(s *pb.Session) string {
	if s.Code != "" {
		return s.Code
	}
	return s.Id
}

// elsewhere is the code with its address, for those whose network doesn't find the host by its number.
func elsewhere(s *pb.Session) string {
	if s.RendezvousNote == "" {
		return ""
	}
	return s.WholeCode
}

// host tells who admits members and plans.
func host(s *pb.Session) string {
	if s.Host != "" && s.Host == s.Self {
		return s.Host + " (this machine)"
	}
	return s.Host
}

func doing(s *pb.Session) string {
	said := strings.TrimPrefix(s.Doing, s.State+": ")
	switch {
	case s.Failure != "":
		return ": " + s.Failure
	case said != "" && said != s.State:
		return ": " + said
	default:
		return ""
	}
}

func memberRows(s *pb.Session) []string {
	rows := []string{"MEMBER\tROLE\tDEVICE\tUSABLE\tDOING"}
	foresees := slices.ContainsFunc(s.Members, func(m *pb.Member) bool { return m.IfLost != "" })
	if foresees {
		rows[0] += split + "IF LOST"
	}
	for _, m := range s.Members {
		name, what := m.Name, m.Doing
		if name == s.Self {
			name += " (here)"
		}
		if !m.Present {
			what = "away"
		}
		if m.FetchedBytes < m.FetchTotalBytes {
			what += fmt.Sprintf(", %d %% of %s", 100*m.FetchedBytes/m.FetchTotalBytes, size(float64(m.FetchTotalBytes))) + pace(m)
		}
		if m.WaitsFor != "" {
			what += ": " + m.WaitsFor
		}
		row := strings.Join([]string{name, m.Role, orDash(m.Device), size(float64(m.UsableMemoryBytes)), orDash(what)}, "\t")
		if foresees {
			row += split + orDash(m.IfLost)
		}
		rows = append(rows, row)
	}
	return rows
}

// ringRows has one row for each stage, with the hop that leaves it.
func ringRows(s *pb.Session, p *plan) []string {
	usable := map[string]uint64{}
	for _, m := range s.Members {
		usable[m.Name] = m.UsableMemoryBytes
	}
	rows := []string{"STAGE\tBLOCKS\tMEMORY\tPREDICTED\tMEASURED" + split + "HOP TO\tPATH\tPREDICTED\tMEASURED"}
	for i, stage := range s.Stages {
		name := stage.Member
		if stage.Head {
			name += " (head)"
		}
		hop := &pb.Hop{}
		if i < len(s.Hops) {
			hop = s.Hops[i]
		}
		rows = append(rows, strings.Join([]string{
			name, blocks(stage.Start, stage.End), memoryOf(float64(stage.ResidentBytes), float64(usable[stage.Member])),
			p.cost(&stage.PredictedS), milliseconds(stage.MeasuredS) + split + orDash(hop.To), pathText(hop), milliseconds(hop.PredictedS), milliseconds(hop.MeasuredS),
		}, "\t"))
	}
	return rows
}

// pathText tells how a hop goes, and what it was thought to be where it came otherwise.
func pathText(hop *pb.Hop) string {
	if hop.PredictedPath != "" && hop.Path != "" && hop.PredictedPath != hop.Path {
		return hop.Path + " (expected " + hop.PredictedPath + ")"
	}
	return orDash(hop.Path)
}

// guesses is whether several tokens go round at a time, as the head has found out by its latest answer.
func guesses(s *pb.Session) string {
	var trace struct {
		Exact int     `json:"exact_tokens"`
		Why   *string `json:"why_no_guesses"`
	}
	switch err := json.Unmarshal([]byte(s.LastTraceJson), &trace); {
	case err != nil || trace.Why == nil:
		return ""
	case *trace.Why != "":
		return "off: " + *trace.Why
	case trace.Exact < 2:
		return "one by one, or where they lead clearly: no number of tokens at once is exact here"
	}
	return fmt.Sprintf("exact up to %d tokens at once", trace.Exact)
}

// speed tells what was promised and, on the head, what the last answer took.
func speed(s *pb.Session, p *plan) string {
	text := "Expected: " + rates(p, max(s.Concurrency, 1))
	var trace struct {
		TokensPerS float64 `json:"tokens_per_s"`
		TTFTS      float64 `json:"ttft_s"`
		PrefillS   float64 `json:"prefill_s"`
		PlannedS   float64 `json:"predicted_ttft_s"`
		PerToken   float64 `json:"circuits_per_token"`
		Guesses    int     `json:"guesses"`
		Right      int     `json:"guesses_right"`
		Ahead      int     `json:"guesses_ahead"`
		Drafted    int     `json:"guesses_drafted"`
	}
	if json.Unmarshal([]byte(s.LastTraceJson), &trace) == nil && trace.TokensPerS > 0 {
		text += fmt.Sprintf("\nLast answer: %.1f tokens/s, first token after %.2f s", trace.TokensPerS, trace.TTFTS)
		text += promptText(trace.PrefillS, trace.PlannedS)
		if trace.Guesses > 0 {
			text += fmt.Sprintf(", %.2f times round the ring for a token: %d of %d guesses were right", trace.PerToken, trace.Right, trace.Guesses)
			text += guessed(trace.Ahead, trace.Drafted)
		}
	}
	return text
}

// guessed tells how guesses went round, and whose they were, where that is not as usual.
func guessed(ahead, drafted int) (text string) {
	if ahead > 0 {
		text += fmt.Sprintf(", %d ran ahead", ahead)
	}
	if drafted > 0 {
		text += fmt.Sprintf(", %d are the draft model's", drafted)
	}
	return text
}

// A prompt may take so many times as long as planned, and so much longer, without a word.
const (
	farOff = 1.5
	shortS = 0.1
)

// promptText tells of a prompt that took much longer, once it had its turn, than was planned for one of its length.
func promptText(tookS, plannedS float64) string {
	if plannedS <= 0 || tookS <= farOff*plannedS || tookS-plannedS <= shortS {
		return ""
	}
	return fmt.Sprintf("\nIts prompt took %.2f s where %.2f s were planned: others were being answered meanwhile, or a member or a"+
		" link is slower than it was measured", tookS, plannedS)
}
