package server

import (
	"log/slog"
	"path/filepath"
	"runtime"

	"github.com/ollama/ollama/ml"
)

// useInstalledLibraries lends local models the GPU code of an installed Ollama, since a build of our own has none.
func useInstalledLibraries() {
	if hasLibraries(ml.LibOllamaPath) {
		return
	}
	for _, folder := range []string{
		"/usr/local/lib/ollama", "/usr/lib/ollama", "/opt/homebrew/opt/ollama/lib/ollama", "/opt/homebrew/lib/ollama",
		"/Applications/Ollama.app/Contents/Resources",
	} {
		if hasLibraries(folder) {
			ml.LibOllamaPath = folder
			slog.Info("local_models", "libraries", folder)
			return
		}
	}
	if runtime.GOOS != "darwin" { // Metal is compiled in there
		slog.Info("local_models", "gpu", false, "reason", "no installed Ollama with lib/ollama was found: local models run on plain CPU code, slowly")
	}
}

// hasLibraries is true for a folder with ggml's loadable back ends, in itself or one level below.
func hasLibraries(folder string) bool {
	for _, pattern := range []string{"*ggml-*", filepath.Join("*", "*ggml-*")} {
		if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
