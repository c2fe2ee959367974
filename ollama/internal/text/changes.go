package text

import (
	"fmt"
	"strings"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// Changes tells what a person wants to know of the step from one state of a session to the next: who came, who left,
// what is waited for, and what is fetched. Of a session that is ready when it is first seen there is nothing to tell.
func Changes(before, now *pb.Session) []string {
	if before == nil && now.State == sessionapi.Ready {
		return nil
	}
	told := Moves(before, now)
	if isNews(before, now) {
		told = append(told, now.Doing)
	}
	return append(told, fetches(before, now)...)
}

// Moves tells who came and who left.
func Moves(before, now *pb.Session) []string {
	var told []string
	was := present(before)
	for _, member := range now.Members {
		if member.Present && !was[member.Name] {
			told = append(told, arrival(before, now, member))
		}
	}
	is := present(now)
	for _, member := range before.GetMembers() {
		if member.Present && !is[member.Name] {
			told = append(told, member.Name+" is away")
		}
	}
	return told
}

// Doing is what a session does now, and what members wait for, in one line that is written anew as that changes.
func Doing(now *pb.Session) string {
	said := []string{now.Doing}
	for _, member := range now.Members {
		if member.WaitsFor != "" {
			said = append(said, member.Name+" waits: "+member.WaitsFor)
		}
	}
	return strings.Join(said, "; ")
}

// asked is who asks now, and how far the answers are: names and counts.
func asked(now *pb.Session) string {
	var said []string
	for _, one := range now.GetActivity().GetAnswering() {
		switch one.Doing {
		case "reading":
			said = append(said, fmt.Sprintf("%s's prompt of %d tokens is read", one.Member, one.PromptTokens))
		case "answering":
			said = append(said, fmt.Sprintf("%s is answered, %d tokens so far", one.Member, one.AnswerTokens))
		case "waiting":
			said = append(said, one.Member+" waits")
		}
	}
	if speed := now.GetActivity().GetTokensPerS(); speed > 0 {
		said = append(said, fmt.Sprintf("%.1f tokens/s", speed))
	}
	return strings.Join(said, "; ")
}

// isNews is true of what a session does unless each member's download, told by itself, says as much.
func isNews(before, now *pb.Session) bool {
	going := before.GetState() == now.State && now.State == sessionapi.Fetching && before.GetDoing() != ""
	return now.Doing != "" && now.Doing != before.GetDoing() && !going
}

func present(session *pb.Session) map[string]bool {
	names := map[string]bool{}
	for _, member := range session.GetMembers() {
		names[member.Name] = member.Present
	}
	return names
}

// arrival tells who came; whom the first look finds was there before.
func arrival(before, session *pb.Session, member *pb.Member) string {
	line := member.Name + " joined"
	switch {
	case member.Name == session.Self:
		line = member.Name + " (this machine) joined"
	case before == nil:
		return member.Name + " is there"
	}
	if session.MembersWanted > 0 {
		return line + ": " + memberCount(session) + " members"
	}
	return line
}

// fetches tells the beginning and the end of each member's download, and what it waits for.
func fetches(before, now *pb.Session) []string {
	was := map[string]*pb.Member{}
	for _, member := range before.GetMembers() {
		was[member.Name] = member
	}
	var told []string
	for _, member := range now.Members {
		old := was[member.Name]
		if member.WaitsFor != "" && lasting(member.WaitsFor) != lasting(old.GetWaitsFor()) {
			told = append(told, member.Name+" waits: "+member.WaitsFor)
		}
		switch {
		case member.FetchTotalBytes == 0:
		case old.GetFetchTotalBytes() == 0 && member.FetchedBytes < member.FetchTotalBytes:
			told = append(told, fmt.Sprintf("%s fetches %s", member.Name, size(float64(member.FetchTotalBytes))))
		case old.GetFetchedBytes() < old.GetFetchTotalBytes() && member.FetchedBytes == member.FetchTotalBytes:
			told = append(told, member.Name+" has its weights")
		}
	}
	return told
}

// lasting is what a member waits for, without when it is tried again.
func lasting(waitsFor string) string {
	what, _, _ := strings.Cut(waitsFor, ", next try")
	return what
}
