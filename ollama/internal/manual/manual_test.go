package manual

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func tree() *cobra.Command {
	root := &cobra.Command{Use: "kafila", Short: "Runs models"}
	session := &cobra.Command{Use: "session", Short: "Runs them together", Long: "A session runs one model."}
	status := &cobra.Command{Use: "status [SESSION]", Short: "Shows it", Run: func(*cobra.Command, []string) {}}
	status.Flags().Bool("json", false, "Print JSON")
	session.AddCommand(status, &cobra.Command{Use: "secret", Hidden: true, Run: func(*cobra.Command, []string) {}})
	root.AddCommand(session)
	return root
}

func TestWrite_makesAPageForEachCommandAndACompletionForEachShell(t *testing.T) {
	folder := t.TempDir()
	if err := Write(tree(), folder, "1.2.3", func(text string) string { return text }); err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string][]string{
		"share/man/man1/kafila.1":                     {"Kafila 1.2.3", "kafila-session(1)"},
		"share/man/man1/kafila-session.1":             {"A session runs one model", "kafila-session-status(1)"},
		"share/man/man1/kafila-session-status.1":      {"--json", "Print JSON"},
		"share/bash-completion/completions/kafila":    {"__start_kafila"},
		"share/zsh/site-functions/_kafila":            {"#compdef kafila"},
		"share/fish/vendor_completions.d/kafila.fish": {"complete -c kafila"},
		"commands.md": {"## kafila session status", "--json"},
	} {
		text, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			t.Error(err)
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				t.Errorf("%s has no %q:\n%s", path, word, text)
			}
		}
		if strings.Contains(string(text), "secret") || strings.Contains(string(text), "0001") {
			t.Errorf("%s tells a hidden command, or a date", path)
		}
	}
}

func TestWrite_whenAskedTwice_writesTheSame(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	for _, folder := range []string{one, other} {
		if err := Write(tree(), folder, "1.2.3", func(text string) string { return text }); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(one, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(one, path)
		first, _ := os.ReadFile(path)
		second, _ := os.ReadFile(filepath.Join(other, rel))
		if string(first) != string(second) {
			t.Errorf("%s differs", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
