package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The test binary is also what it starts: the scheduler's runner, and a sidecar that behaves as its first argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		if err := runRunner(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "test-sidecar" {
		runTestSidecar(os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

func TestNewCLI_keepsStockCommandsAndFlags(t *testing.T) {
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
	for _, flag := range []string{"verbose", "format", "think", "keepalive", "session", "yes", "memory"} {
		if run.Flags().Lookup(flag) == nil {
			t.Errorf("run has no --%s", flag)
		}
	}
	for _, name := range []string{
		"create", "join", "start", "code", "lock", "unlock", "kick", "status", "plan", "doctor", "leave", "list",
	} {
		if found, _, err := root.Find([]string{"session", name}); err != nil || found.Name() != name {
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
		"session create": {"Examples:", "--members N", "Environment Variables:", "OLLAMA_HOST", "KAFILA_RENDEZVOUS"},
		"session join":   {"Examples:", "--memory SIZE", "OLLAMA_HOST"},
		"session doctor": {"Examples:", "--rendezvous ADDRESS"},
		"serve":          {"OLLAMA_MODELS", "KAFILA_HOME"},
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
