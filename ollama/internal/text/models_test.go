package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"kafila/ollama/pb"
)

func TestModels_tellSizesNeedsAndNotes(t *testing.T) {
	const gated, other = "its terms have to be accepted at the Hub", "answers slowly"
	text := Models([]*pb.NamedModel{
		{Name: "qwen3:32b", WeightBytes: 65.5e9, NeededBytes: []uint64{68.8e9, 35e9, 23.7e9, 18.1e9}, Here: true},
		{Name: "llama3.1:8b", WeightBytes: 16.1e9, NeededBytes: []uint64{18.4e9, 9.8e9}, Note: gated},
		{Name: "slow:1b", Note: other},
		{Name: "llama3.1:70b", Note: gated},
	})
	for _, line := range [][]string{
		{"qwen3:32b", "65.5 GB", "68.8 GB", "35 GB", "23.7 GB", "18.1 GB", "yes"},
		{"llama3.1:8b [1]", "16.1 GB", "18.4 GB", "9.8 GB", "–", "–", "–"},
		{"slow:1b [2]"},
		{"llama3.1:70b [1]"},
		{"[1] " + gated},
		{"[2] " + other},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
	if strings.Count(text, gated) != 1 {
		t.Errorf("a note is told more than once:\n%s", text)
	}
}

func TestModels_whateverTheSizes_fitAnOrdinaryTerminal(t *testing.T) {
	widest := []uint64{470.2e9, 11.1e9, 999.4e9, 1.11e12}
	text := Models([]*pb.NamedModel{
		{Name: "qwen3:30b-a3b-4bit", WeightBytes: 61.1e9, NeededBytes: widest, Here: true},
		{Name: "llama3.3:70b", WeightBytes: 1.41e12, NeededBytes: widest, Note: "its terms have to be accepted at the Hub"},
	})
	for _, line := range strings.Split(text, "\n") {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}
