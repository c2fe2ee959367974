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
