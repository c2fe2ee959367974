package cli

import (
	"strings"
	"testing"
)

func TestCommands_misspelt_tellWhichWasMeant(t *testing.T) {
	for typed, want := range map[string]string{
		"session staus":                "did you mean status?",
		"session crate":                "did you mean create?",
		"session jion":                 "did you mean join?",
		"session weights prnue":        "did you mean prune?",
		"session frobnicate":           `unknown command "frobnicate" for "ollama session"`,
		"session create --membres 3 m": "did you mean --members?",
		"session status --wach":        "did you mean --watch?",
		"session create --zzzzzz m":    "shows what it takes",
		"session create --members x m": "shows what it takes",
		"service instal":               "did you mean install?",
	} {
		root, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		root.SetArgs(strings.Fields(typed))
		root.SilenceErrors, root.SilenceUsage = true, true
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", typed, err)
		}
	}
}
