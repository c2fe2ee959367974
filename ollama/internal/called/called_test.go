package called

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWords_whenCalledKafila_nameTheCommandSo(t *testing.T) {
	for sentence, want := range map[string]string{
		"start `ollama serve` anew":                       "start `kafila serve` anew",
		"ollama session leave --yes does it":              "kafila session leave --yes does it",
		"  ollama run --session 7-a-b-c":                  "  kafila run --session 7-a-b-c",
		"`ollama rm` leaves; (ollama list)":               "`kafila rm` leaves; (kafila list)",
		"another Ollama has the port, ollama is stock":    "another Ollama has the port, ollama is stock",
		"/usr/local/lib/ollama run by hand, myollama run": "/usr/local/lib/ollama run by hand, myollama run",
		"ollama runner, ollama servers":                   "ollama runner, ollama servers",
	} {
		if got := Words(Kafila, sentence); got != want {
			t.Errorf("%q: %q", sentence, got)
		}
		if got := Words(Ollama, sentence); got != sentence {
			t.Errorf("%q: %q", sentence, got)
		}
	}
}

func TestWriter_whenCalledKafila_passesEverythingOn(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const text = "see `ollama session status`\n"
	if n, err := Writer(Kafila, file).Write([]byte(text)); err != nil || n != len(text) {
		t.Errorf("%d, %v", n, err)
	}
	if printed, err := os.ReadFile(file.Name()); err != nil || string(printed) != "see `kafila session status`\n" {
		t.Errorf("%q, %v", printed, err)
	}
}

func TestNameOf_whenTheFileIsKafila_isKafila(t *testing.T) {
	for program, want := range map[string]string{
		"kafila": Kafila, "/home/ada/.local/bin/kafila": Kafila, ".build/ollama": Ollama, "ollama-linux-amd64": Ollama, "": Ollama,
	} {
		if got := nameOf(program); got != want {
			t.Errorf("%q: %q", program, got)
		}
	}
}
