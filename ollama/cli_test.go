package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"kafila/ollama/pb"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "12GB": 12e9, "12g": 12e9, "1.5 GB": 1.5e9, "12GiB": 12 << 30, "800MB": 800e6, "64k": 64e3, "4096": 4096, "1TB": 1e12,
	} {
		if got, err := parseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"much", "-1GB", "12XB", "GB", "12 12"} {
		if _, err := parseBytes(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestModelArgument(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("models/mine", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("models/mine/config.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs("models/mine")
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		"Qwen/Qwen3-8B": "Qwen/Qwen3-8B", "models/mine": folder, "./models/mine": folder, folder: folder,
	} {
		if got, err := modelArgument(given); err != nil || got != want {
			t.Errorf("%s: %s, %v", given, got, err)
		}
	}
	if _, err := modelArgument("./models/none"); err == nil {
		t.Error("a folder without a model was accepted")
	}
}

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
		{nil, readySession(), nil},
	} {
		if got := changes(row.before, row.now); !slices.Equal(got, row.want) {
			t.Errorf("step %d: %q", i, got)
		}
	}
}

func TestAgree_withoutTerminal_wantsYes(t *testing.T) {
	offer := &pb.Offer{Host: "laptop", Model: "org/model", LendMemoryBytes: 4e9, DownloadBytes: 3e8, MembersPresent: 2, MembersWanted: 3}
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if err := agree(offer, false, nobody, io.Discard); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("%v", err)
	}
	if err := agree(offer, true, nobody, io.Discard); err != nil {
		t.Error(err)
	}
	for _, word := range []string{"laptop", "org/model", "4 GB", "300 MB", "2 of 3"} {
		if !strings.Contains(terms(offer), word) {
			t.Errorf("the terms don't tell %s: %s", word, terms(offer))
		}
	}
}

func TestConfirm_onlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "n\n": false, "yesterday\n": false, "": false} {
		if err := confirm(strings.NewReader(answer), &bytes.Buffer{}); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestSize_hasThreeDigits(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 999: "999 B", 15777440256: "15.8 GB", 4e9: "4 GB", 604e6: "604 MB", 1.5e12: "1.5 TB", 2048: "2.05 kB", 999.9e6: "1 GB"} {
		if got := size(bytes); got != want {
			t.Errorf("%v: %s", bytes, got)
		}
	}
}

func TestDownloads_tellWhatIsScarceAndWhatIsThere(t *testing.T) {
	for want, offer := range map[string]*pb.Offer{
		"nothing: /models/mine has the weights": {Folder: "/models/mine"},
		"up to 3 GB to /data (9 GB free)":       {DownloadBytes: 3e9, FreeDiskBytes: 9e9, Folder: "/data"},
	} {
		if got := downloads(offer); got != want {
			t.Errorf("%s", got)
		}
	}
	if got := downloads(&pb.Offer{DownloadBytes: 3e9, FreeDiskBytes: 1e9}); !strings.Contains(got, "make room") {
		t.Errorf("%s", got)
	}
}

func TestSessionCommands_whenTypedWrongly_sayHowTheyAreWritten(t *testing.T) {
	for typed, want := range map[string]string{
		"join":                     "ollama session join is written: ollama session join CODE [flags]",
		"kick a b c":               "ollama session kick NAME [SESSION]",
		"create m --members many":  `invalid argument "many" for "--members" flag: `,
		"create m --members -1":    `invalid argument "-1" for "--members" flag: `,
		"status --colour":          "unknown flag: --colour: `ollama session status --help`",
		"list 7-ocean-velvet-lamp": "ollama session list [flags]",
	} {
		root := &cobra.Command{Use: "ollama", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(sessionCommand(func(*cobra.Command, []string) error { return nil }))
		root.SetArgs(append([]string{"session"}, strings.Fields(typed)...))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%s: %v", typed, err)
		}
	}
}

func TestListText_ofAClosedSession_tellsWhy(t *testing.T) {
	gone := &pb.Session{Code: "7-ocean-velvet-lamp@h:1", State: closed, Failure: "mini was removed from the session"}
	if got := listText([]*pb.Session{gone}); !strings.Contains(got, "7-ocean-velvet-lamp ended: mini was removed") {
		t.Errorf("%s", got)
	}
}
