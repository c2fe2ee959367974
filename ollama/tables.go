package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

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
			title(s), s.Model, s.State, memberCount(s), orDash(runAs(s)),
		}, "\t"))
	}
	var text strings.Builder
	table(&text, rows)
	for _, s := range sessions {
		if s.State == closed && s.Failure != "" {
			fmt.Fprintf(&text, "%s ended: %s\n", title(s), s.Failure)
		}
	}
	return text.String()
}

// runAs is the model's name for `ollama run`, or "" while nobody can ask it.
func runAs(s *pb.Session) string {
	if s.State == ready || s.State == replanning {
		return s.Vehicle.GetName()
	}
	return ""
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

// blocks shows a half-open range as people count: the first and the last block, and how many they are.
func blocks(start, end uint32) string {
	switch {
	case end <= start:
		return "–"
	case end == start+1:
		return fmt.Sprintf("%d (1)", start)
	}
	return fmt.Sprintf("%d–%d (%d)", start, end-1, end-start)
}

// memoryOf shows what is used of what may be.
func memoryOf(used, usable float64) string {
	return size(used) + " of " + size(usable)
}

// known shows a time that may not be known.
func known(s *float64) string {
	if s == nil {
		return "–"
	}
	return milliseconds(*s)
}

func rate(tokensPerS *float64) string {
	if tokensPerS == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f tokens/s", *tokensPerS)
}
