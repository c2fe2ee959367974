package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// newCLI is the command line around a server that is stock's alone.
func newCLI() (*cobra.Command, error) {
	return New(func(_ context.Context, stock func() error) error { return stock() })
}

func TestNew_keepsStockCommandsAndFlags(t *testing.T) {
	root, err := newCLI()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"serve", "create", "show", "run", "stop", "pull", "push", "list", "ps", "cp", "rm"} {
		if found, _, err := root.Find([]string{name}); err != nil || found.Name() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	run, _, _ := root.Find([]string{"run"})
	for _, flag := range []string{"verbose", "format", "think", "keepalive", "session", "yes", "memory", "spare"} {
		if run.Flags().Lookup(flag) == nil {
			t.Errorf("run has no --%s", flag)
		}
	}
	for _, name := range []string{
		"create", "join", "start", "code", "lock", "unlock", "kick", "replan", "status", "plan", "doctor", "leave", "list",
		"models", "weights", "weights rm", "weights prune", "rendezvous", "rendezvous set", "rendezvous unset",
	} {
		if found, _, err := root.Find(strings.Fields("session " + name)); err != nil || found.CommandPath() != "ollama session "+name {
			t.Errorf("session %s: %v", name, err)
		}
	}
}

func TestRun_whenSessionIsNamed_needsNoModel(t *testing.T) {
	root, err := newCLI()
	if err != nil {
		t.Fatal(err)
	}
	run, _, _ := root.Find([]string{"run"})
	if err := run.ValidateArgs(nil); err == nil {
		t.Error("run without model was accepted")
	}
	if err := run.ParseFlags([]string{"--session", "7-ocean-velvet-lamp"}); err != nil {
		t.Fatal(err)
	}
	if err := run.ValidateArgs(nil); err != nil {
		t.Errorf("run --session without prompt: %v", err)
	}
}

func TestStockCommand_whenUpstreamChanged_fails(t *testing.T) {
	root := &cobra.Command{Use: "ollama"}
	root.AddCommand(&cobra.Command{Use: "run", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return nil }})
	if _, err := stockCommand(root, "run", "format"); err == nil {
		t.Error("a missing flag was not noticed")
	}
	if _, err := stockCommand(root, "serve"); err == nil {
		t.Error("a missing command was not noticed")
	}
}

func TestHelp_ofSessionCommands_tellsExamplesAndVariables(t *testing.T) {
	root, err := newCLI()
	if err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string][]string{
		"run":            {"Examples:", "run --session 7-ocean-velvet-lamp", "OLLAMA_HOST", "KAFILA_RENDEZVOUS"},
		"session":        {"Examples:", "session create", "run --session"},
		"session create": {"Examples:", "--members N", "--quantize BITS", "--spare SIZE", "Environment Variables:", "OLLAMA_HOST", "KAFILA_RENDEZVOUS"},
		"session join":   {"Examples:", "--memory SIZE", "--spare SIZE", "OLLAMA_HOST"},
		"session doctor": {"Examples:", "--rendezvous ADDRESS"},

		"session weights":       {"Examples:", "--json", "OLLAMA_HOST", "prune"},
		"session weights rm":    {"Examples:", "rm MODEL[@REVISION]", "--yes", "OLLAMA_HOST"},
		"session weights prune": {"--unused-for TIME", "30d", "OLLAMA_HOST"},
		"serve":                 {"OLLAMA_MODELS", "KAFILA_HOME", "KAFILA_WEIGHTS_LIMIT", "KAFILA_SPARE"},
	} {
		command, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		help := command.UsageString()
		for _, word := range words {
			if !strings.Contains(help, word) {
				t.Errorf("help of %s has no %s:\n%s", path, word, help)
			}
		}
		if n := strings.Count(help, "Environment Variables:"); n > 1 {
			t.Errorf("help of %s tells variables %d times", path, n)
		}
	}
}

func TestSessionCommands_whenTypedWrongly_sayHowTheyAreWritten(t *testing.T) {
	for typed, want := range map[string]string{
		"join":                     "usage: ollama session join CODE [flags]",
		"kick a b c":               "ollama session kick NAME [SESSION]",
		"create m --members many":  `invalid argument "many" for "--members" flag: `,
		"create m --members -1":    `invalid argument "-1" for "--members" flag: `,
		"status --colour":          "unknown flag: --colour: `ollama session status --help`",
		"list 7-ocean-velvet-lamp": "ollama session list [flags]",
		"models qwen3":             "ollama session models [flags]",
		"weights qwen3":            "ollama session weights [rm MODEL|prune] [flags]",
		"weights rm":               "ollama session weights rm MODEL[@REVISION] [flags]",
		"weights prune 30d":        "ollama session weights prune [flags]",
		"weights prune --unused":   "unknown flag: --unused: `ollama session weights prune --help`",
	} {
		root := &cobra.Command{Use: "ollama", SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(sessionCommand(func(*cobra.Command, []string) error { return nil }))
		root.SetArgs(append([]string{"session"}, strings.Fields(typed)...))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%s: %v", typed, err)
		}
	}
}
