package cli

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

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
	if strings.Contains(text.Terms(offer), "spares") {
		t.Errorf("the terms tell of spares that nobody fetches: %s", text.Terms(offer))
	}
	offer.SpareBytes = 12e9
	for _, word := range []string{"laptop", "org/model", "4 GB", "300 MB", "2 of 3", "up to 12 GB more while idle"} {
		if !strings.Contains(text.Terms(offer), word) {
			t.Errorf("the terms don't tell %s: %s", word, text.Terms(offer))
		}
	}
}

func TestSpareBytes_whenSaid_areSentAndElseLeftToTheServer(t *testing.T) {
	for said, want := range map[string]uint64{"0": 0, "20GB": 20e9} {
		if got, err := spareBytes(said); err != nil || got == nil || *got != want {
			t.Errorf("--spare %s: %v, %v", said, got, err)
		}
	}
	if got, err := spareBytes(""); err != nil || got != nil {
		t.Errorf("without --spare: %v, %v", got, err)
	}
	if _, err := spareBytes("much"); err == nil {
		t.Error("nonsense was taken for a size")
	}
}

func TestConfirm_onlyYesIsYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "n\n": false, "yesterday\n": false, "": false} {
		if err := whetherToJoin.confirm(strings.NewReader(answer), &bytes.Buffer{}); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

func TestJoin_whenTheWholeLineIsPastedBehindIt_theCodeIsTheOneAfterSession(t *testing.T) {
	for _, typed := range []string{
		"7-ocean-velvet-lamp", "7 ocean velvet lamp", "ollama run --session 7-ocean-velvet-lamp", "kafila run --session=7-ocean-velvet-lamp",
		"ollama session join 7-ocean-velvet-lamp",
	} {
		cmd := joinCommand()
		if err := cmd.ParseFlags(strings.Fields(typed)); err != nil {
			t.Errorf("%s: %v", typed, err)
		}
		if err := cmd.Args(cmd, cmd.Flags().Args()); err != nil {
			t.Errorf("%s: %v", typed, err)
		}
		if code := codeTyped(cmd, cmd.Flags().Args()); !strings.Contains(strings.ReplaceAll(code, " ", "-"), "7-ocean-velvet-lamp") {
			t.Errorf("%s: %s", typed, code)
		}
	}
	if cmd := joinCommand(); cmd.Args(cmd, nil) == nil || cmd.Args(cmd, strings.Fields("7 ocean velvet lamp too many")) == nil {
		t.Error("any number of words is a code")
	}
}
