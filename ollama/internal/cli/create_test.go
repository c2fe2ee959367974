package cli

import (
	"os"
	"path/filepath"
	"testing"
)

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
