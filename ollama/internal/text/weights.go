package text

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"kafila/ollama/pb"
)

// revisionLetters is how much of a revision is shown: enough to tell commits apart.
const revisionLetters = 8

// Weights is a table of the weights on this machine's disk, with what they take together.
func Weights(kept *pb.ListWeightsReply, now time.Time) string {
	limit := "none: KAFILA_WEIGHTS_LIMIT sets one"
	if kept.LimitBytes > 0 {
		limit = size(float64(kept.LimitBytes))
	}
	var text strings.Builder
	if len(kept.Weights) > 0 {
		table(&text, weightRows(kept.Weights, now))
		text.WriteByte('\n')
	}
	table(&text, []string{
		"Total\t" + size(float64(diskBytes(kept.Weights))) + " in " + kept.Folder,
		"Free\t" + size(float64(kept.FreeDiskBytes)),
		"Limit\t" + limit,
	})
	return text.String()
}

// Removal says which weights would go, and how much that frees.
func Removal(going []*pb.KeptWeights, now time.Time) string {
	var text strings.Builder
	table(&text, weightRows(going, now))
	return text.String() + "\nRemoving this frees " + size(float64(diskBytes(going))) + ".\n"
}

// Freed says what came of a removal.
func Freed(reply *pb.FreedReply) string {
	return "Removed: " + size(float64(reply.Bytes)) + " of the disk are free again."
}

// Left says what stays on the disk of the model that a session has used, or "". The session calls it as its host did,
// perhaps by a short name, so the revision tells which it is.
func Left(kept []*pb.KeptWeights, session *pb.Session) string {
	used := slices.IndexFunc(kept, func(one *pb.KeptWeights) bool { return one.Revision == session.Revision })
	if used < 0 {
		return ""
	}
	model := kept[used].Model
	var stays []*pb.KeptWeights
	for _, one := range kept {
		if one.Model == model {
			stays = append(stays, one)
		}
	}
	return fmt.Sprintf("weights of %[1]s stay on this machine (%[2]s): `ollama session weights rm %[1]s` removes them",
		model, size(float64(diskBytes(stays))))
}

// diskBytes is what weights take together.
func diskBytes(kept []*pb.KeptWeights) (bytes uint64) {
	for _, one := range kept {
		bytes += one.DiskBytes
	}
	return bytes
}

func weightRows(kept []*pb.KeptWeights, now time.Time) []string {
	rows := []string{"MODEL\tREVISION\tSIZE\tHOLDS\tLAST USED"}
	for _, one := range kept {
		holds, used := "a part", ago(one.LastUsedS, now)
		if one.Whole {
			holds = "all"
		}
		if one.InUse {
			used = "in use now"
		}
		rows = append(rows, strings.Join([]string{
			one.Model, orDash(beginning(one.Revision)), size(float64(one.DiskBytes)), holds, used,
		}, "\t"))
	}
	return rows
}

// beginning is the part of a revision that is shown.
func beginning(revision string) string {
	if letters := []rune(revision); len(letters) > revisionLetters {
		return string(letters[:revisionLetters])
	}
	return revision
}

// ago tells how long before now a time was, which is in seconds since 1970; what isn't known is a dash.
func ago(s float64, now time.Time) string {
	if !(s > 0) { // nor is NaN
		return "–"
	}
	passed := float64(now.Unix()) - s
	switch {
	case passed < minute:
		return "just now"
	case passed < hour:
		return counted(passed/minute, "minute") + " ago"
	case passed < 2*day:
		return counted(passed/hour, "hour") + " ago"
	}
	return counted(passed/day, "day") + " ago"
}

func counted(number float64, unit string) string {
	if int(number) == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", int(number), unit)
}
