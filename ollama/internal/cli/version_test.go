package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestVersion_ofEveryCommandThatHasOne_endsWithKafilas(t *testing.T) {
	t.Setenv("OLLAMA_HOST", "127.0.0.1:1") // nobody serves, and nobody has to
	for _, typed := range []string{"--version", "-v", "session --version", "session -v"} {
		root, err := newCLI()
		if err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		root.SetOut(&printed)
		root.SetArgs(strings.Fields(typed))
		if err := root.Execute(); err != nil || printed.String() != "kafila version is dev\n" {
			t.Errorf("%s: %q, %v", typed, printed.String(), err)
		}
	}
}
