package text

import (
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/pb"
)

func TestPace_tellsRateAndTimeLeft(t *testing.T) {
	for _, row := range []struct {
		name           string
		fetched, total uint64
		rate           float64
		want           string
	}{
		{"seconds", 4e9, 5e9, 50e6, ", 50 MB/s, 20 s left"},
		{"minutes", 0, 40e9, 100e6, ", 100 MB/s, 7 min left"},
		{"hours", 0, 40e9, 4e6, ", 4 MB/s, 2.8 h left"},
		{"not known", 1, 2, 0, ""},
		{"all here", 2, 2, 5, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			member := &pb.Member{FetchedBytes: row.fetched, FetchTotalBytes: row.total, FetchRateBytesPerS: row.rate}
			if got := pace(member); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func TestStatus_tellsWhatAMemberWaitsFor(t *testing.T) {
	session := fake.ReadySession()
	session.Members = []*pb.Member{{
		Name: "mini", Role: "member", Present: true, Doing: "fetching", FetchedBytes: 50, FetchTotalBytes: 100,
		WaitsFor: "the model host answers 503, next try in 8 s",
	}}
	if got := Status(session, 0); !strings.Contains(got, "fetching, 50 % of 100 B: the model host answers 503, next try in 8 s") {
		t.Errorf("not told in:\n%s", got)
	}
}

func TestChanges_tellWhatAMemberWaitsForOnce(t *testing.T) {
	waiting := &pb.Session{State: "fetching", Members: []*pb.Member{{
		Name: "mini", Present: true, FetchTotalBytes: 100, WaitsFor: "the model host answers 503, next try in 8 s",
	}}}
	before := &pb.Session{State: "fetching", Members: []*pb.Member{{Name: "mini", Present: true, FetchTotalBytes: 100}}}
	told := Changes(before, waiting)
	if len(told) != 1 || told[0] != "mini waits: the model host answers 503, next try in 8 s" {
		t.Errorf("told %q", told)
	}
	if told := Changes(waiting, waiting); len(told) != 0 {
		t.Errorf("told again %q", told)
	}
}
