package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/ollama/ollama/format"

	"kafila/ollama/pb"
)

// table lays rows out in columns; cells are separated by tabs.
func table(w io.Writer, rows []string) {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(columns, row)
	}
	columns.Flush() // a strings.Builder takes everything
}

func listText(sessions []*pb.Session) string {
	rows := []string{"SESSION\tMODEL\tSTATE\tMEMBERS\tRUN AS"}
	for _, s := range sessions {
		rows = append(rows, strings.Join([]string{
			title(s), s.Model, s.State, memberCount(s), orDash(s.Vehicle.GetName()),
		}, "\t"))
	}
	var text strings.Builder
	table(&text, rows)
	return text.String()
}

func memberCount(s *pb.Session) string {
	here := 0
	for _, is := range present(s) {
		if is {
			here++
		}
	}
	if s.MembersWanted == 0 {
		return fmt.Sprint(here)
	}
	return fmt.Sprintf("%d of %d", here, s.MembersWanted)
}

// statusText is a session for people: what it is, who is in it, and the ring with predicted beside measured times.
func statusText(s *pb.Session) string {
	var text strings.Builder
	head := []string{
		"Session\t" + title(s),
		"Model\t" + s.Model,
		"State\t" + s.State + doing(s),
		fmt.Sprintf("Room\t%d tokens of context, %d at once, %d now", s.ContextTokens, s.Concurrency, s.ActiveSequences),
	}
	if s.Vehicle.GetName() != "" {
		head = append(head, "Run as\t"+s.Vehicle.Name)
	}
	if s.RendezvousNote != "" {
		head = append(head, "Rendezvous\t"+s.RendezvousNote)
	}
	table(&text, head)
	text.WriteByte('\n')
	table(&text, memberRows(s))
	if len(s.Stages) > 0 {
		text.WriteByte('\n')
		table(&text, ringRows(s))
		text.WriteString("\n" + speed(s) + "\n")
	}
	return text.String()
}

func doing(s *pb.Session) string {
	switch {
	case s.Failure != "":
		return ": " + s.Failure
	case s.Doing != "":
		return ": " + s.Doing
	default:
		return ""
	}
}

func memberRows(s *pb.Session) []string {
	rows := []string{"MEMBER\tROLE\tDEVICE\tUSABLE\tDOING"}
	for _, m := range s.Members {
		name, what := m.Name, m.Doing
		if name == s.Self {
			name += " (here)"
		}
		if !m.Present {
			what = "away"
		}
		if m.FetchedBytes < m.FetchTotalBytes {
			what += fmt.Sprintf(", %d %% of %s", 100*m.FetchedBytes/m.FetchTotalBytes, format.HumanBytes(int64(m.FetchTotalBytes)))
		}
		rows = append(rows, strings.Join([]string{
			name, m.Role, orDash(m.Device), format.HumanBytes(int64(m.UsableMemoryBytes)), orDash(what),
		}, "\t"))
	}
	return rows
}

// ringRows has one row for each stage, with the hop that leaves it.
func ringRows(s *pb.Session) []string {
	rows := []string{"STAGE\tBLOCKS\tMEMORY\tPREDICTED\tMEASURED\tHOP TO\tPATH\tPREDICTED\tMEASURED"}
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
			name, blocks(stage.Start, stage.End), format.HumanBytes(int64(stage.ResidentBytes)),
			milliseconds(stage.PredictedS), milliseconds(stage.MeasuredS),
			orDash(hop.To), orDash(hop.Path), milliseconds(hop.PredictedS), milliseconds(hop.MeasuredS),
		}, "\t"))
	}
	return rows
}

// blocks shows a half-open range as people count: the first and the last block.
func blocks(start, end uint32) string {
	if end <= start {
		return "–"
	}
	return fmt.Sprintf("%d–%d", start, end-1)
}

// speed tells what was promised and, on the head, what the last answer took.
func speed(s *pb.Session) string {
	text := "Expected for one user: not known yet"
	if s.ExpectedTokensPerS > 0 {
		text = fmt.Sprintf("Expected for one user: %.1f tokens/s", s.ExpectedTokensPerS)
	}
	var trace struct {
		TokensPerS float64 `json:"tokens_per_s"`
		TTFTS      float64 `json:"ttft_s"`
	}
	if json.Unmarshal([]byte(s.LastTraceJson), &trace) == nil && trace.TokensPerS > 0 {
		text += fmt.Sprintf("; last answer: %.1f tokens/s, first token after %.2f s", trace.TokensPerS, trace.TTFTS)
	}
	return text
}
