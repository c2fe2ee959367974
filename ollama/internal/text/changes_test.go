package text

import (
	"slices"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/pb"
)

func TestChanges_tellWhoCameWhoLeftAndWhatIsFetched(t *testing.T) {
	here := func(name string, fetched, total uint64) *pb.Member {
		return &pb.Member{Name: name, Present: true, FetchedBytes: fetched, FetchTotalBytes: total}
	}
	one := &pb.Session{Self: "a", MembersWanted: 2, Doing: "waiting for 1 more member", Members: []*pb.Member{here("a", 0, 0)}}
	two := &pb.Session{Self: "a", MembersWanted: 2, Doing: "fetching", Members: []*pb.Member{here("a", 0, 5e6), here("b", 0, 0)}}
	three := &pb.Session{Self: "a", MembersWanted: 2, Doing: "fetching", Members: []*pb.Member{here("a", 5e6, 5e6), {Name: "b"}}}
	for i, row := range []struct {
		before, now *pb.Session
		want        []string
	}{
		{nil, one, []string{"a (this machine) joined: 1 of 2 members", "waiting for 1 more member"}},
		{one, two, []string{"b joined: 2 of 2 members", "fetching", "a fetches 5 MB"}},
		{two, three, []string{"b is away", "a has its weights"}},
		{three, three, nil},
		{nil, two, []string{"a (this machine) joined: 2 of 2 members", "b is there", "fetching", "a fetches 5 MB"}},
		{nil, fake.ReadySession(), nil},
	} {
		if got := Changes(row.before, row.now); !slices.Equal(got, row.want) {
			t.Errorf("step %d: %q", i, got)
		}
	}
}

func TestChanges_whileMembersFetchAndLoad_doNotPileUp(t *testing.T) {
	doing := func(what, waits string) *pb.Session {
		return &pb.Session{State: "fetching", Doing: what, Members: []*pb.Member{{Name: "a", Present: true, WaitsFor: waits}}}
	}
	steps := []*pb.Session{
		doing("fetching and loading", ""), doing("a is fetching", ""), doing("a is fetching, b is fetching", "503, next try in 8 s"),
		doing("a is loading, b is fetching", "503, next try in 16 s"), doing("a is loading", ""),
	}
	var told []string
	for i, now := range steps[1:] {
		told = append(told, Changes(steps[i], now)...)
	}
	if !slices.Equal(told, []string{"a waits: 503, next try in 8 s"}) {
		t.Errorf("%q", told)
	}
	if got := Doing(steps[2]); got != "a is fetching, b is fetching; a waits: 503, next try in 8 s" {
		t.Error(got)
	}
}
