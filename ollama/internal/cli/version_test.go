package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	upstream "github.com/ollama/ollama/version"
)

func TestVersion_ofEveryCommand_endsWithKafilas(t *testing.T) {
	t.Setenv("OLLAMA_HOST", "127.0.0.1:1") // nobody serves, and nobody has to
	root, err := newCLI()
	if err != nil {
		t.Fatal(err)
	}
	typed := []string{"-v", "session -v"}
	each(root, func(command *cobra.Command) {
		typed = append(typed, strings.TrimSpace(strings.TrimPrefix(command.CommandPath(), "ollama")+" --version"))
	})
	if len(typed) < 30 {
		t.Fatalf("only %d commands", len(typed))
	}
	for _, one := range typed {
		if printed := output(t, one); !strings.HasSuffix(printed, "kafila version is dev\nprotocol version is 1\n") {
			t.Errorf("%s: %q", one, printed)
		}
	}
	if printed := output(t, "session status --version"); !strings.Contains(printed, "ollama version is "+upstream.Version) {
		t.Errorf("%q does not tell upstream's", printed)
	}
}

// output is what a command line prints.
func output(t *testing.T, typed string) string {
	t.Helper()
	root, err := newCLI()
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	root.SetOut(&printed)
	root.SetArgs(strings.Fields(typed))
	if err := root.Execute(); err != nil {
		t.Errorf("%s: %v", typed, err)
	}
	return printed.String()
}

// each looks at a command and all below it.
func each(command *cobra.Command, look func(*cobra.Command)) {
	look(command)
	for _, one := range command.Commands() {
		each(one, look)
	}
}
