// Package text says in words and tables, for people, what a session, a plan or an offer is. It only turns messages into
// text: it asks nobody and prints nothing. It imports sessionapi and pb.
package text

import (
	"fmt"
	"strings"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// Sessions is a table of the sessions that this machine is in.
func Sessions(sessions []*pb.Session) string {
	rows := []string{"SESSION\tMODEL\tSTATE\tMEMBERS\tRUN AS"}
	for _, s := range sessions {
		rows = append(rows, strings.Join([]string{
			sessionapi.Title(s), s.Model, s.State, memberCount(s), orDash(runAs(s)),
		}, "\t"))
	}
	var text strings.Builder
	table(&text, rows)
	for _, s := range sessions {
		if s.State == sessionapi.Sleeping {
			fmt.Fprintf(&text, "%s is %s\n", sessionapi.Title(s), s.Doing)
		}
		if s.State == sessionapi.Closed && s.Failure != "" {
			fmt.Fprintf(&text, "%s ended: %s\n", sessionapi.Title(s), s.Failure)
		}
	}
	return text.String()
}

// runAs is the model's name for `ollama run`, or "" while nobody can ask it.
func runAs(s *pb.Session) string {
	if s.State == sessionapi.Ready || s.State == sessionapi.Replanning || s.State == sessionapi.Sleeping {
		return s.Vehicle.GetName()
	}
	return ""
}

func memberCount(s *pb.Session) string {
	var here uint32
	for _, member := range s.Members {
		if member.Present {
			here++
		}
	}
	return ofWanted(here, s.MembersWanted)
}

// ofWanted counts members, beside how many are waited for where that was said.
func ofWanted(here, wanted uint32) string {
	if wanted == 0 {
		return fmt.Sprint(here)
	}
	return fmt.Sprintf("%d of %d", here, wanted)
}
