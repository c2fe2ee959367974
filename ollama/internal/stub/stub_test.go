package stub

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ollama/ollama/fs/ggml"
	"github.com/ollama/ollama/llama"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/seal"
	"kafila/ollama/pb"
)

var key = seal.New()

func stubFile(t *testing.T, session *pb.Session) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stub.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Write(file, session, key, ""); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

func TestStub_whenWritten_isReadByUpstreamsDecoder(t *testing.T) {
	path := stubFile(t, fake.ReadySession())
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	model, err := ggml.Decode(file, -1)
	if err != nil {
		t.Fatal(err)
	}
	kv := model.KV()
	if kv.ContextLength() != 4096 || kv.EmbeddingLength() != 576 || kv.BlockCount() != 1 {
		t.Errorf("context %d, embedding %d, blocks %d", kv.ContextLength(), kv.EmbeddingLength(), kv.BlockCount())
	}
	if len(model.Tensors().Items()) != 0 {
		t.Error("the stub model has tensors")
	}
	if got, ok := Read(path); got.Session != "s1" || !ok {
		t.Errorf("Read gave %v, %t", got, ok)
	}
}

func TestStub_whenEqual_hasEqualBytes(t *testing.T) {
	first, err := os.ReadFile(stubFile(t, fake.ReadySession()))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(stubFile(t, fake.ReadySession()))
	if err != nil {
		t.Fatal(err)
	}
	more := fake.ReadySession()
	more.Concurrency = 4
	third, err := os.ReadFile(stubFile(t, more))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("equal sessions gave different files")
	}
	if bytes.Equal(first, third) {
		t.Error("another concurrency gave the same file, which stock would not load anew")
	}
	if len(first) > 2000 {
		t.Errorf("the stub model has %d bytes", len(first))
	}
}

// The stock server counts tokens with this vocabulary, and must never find a conversation too long.
func TestStub_whenTokenized_countsNextToNothing(t *testing.T) {
	model, err := llama.LoadModelFromFile(stubFile(t, fake.ReadySession()), llama.ModelParams{VocabOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer llama.FreeModel(model)
	text := strings.Repeat("Ein Satz, 一个句子, ein 🐫 and <unk> </s> [INST].\n", 2000)
	tokens, err := model.Tokenize(text, false, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(tokens) > 3*2000 {
		t.Errorf("%d tokens for %d bytes", len(tokens), len(text))
	}
	plain, err := model.Tokenize(strings.Repeat("word ", 10000), false, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(plain) > 2 {
		t.Errorf("%d tokens for plain text", len(plain))
	}
}

func TestRead_whenNotOurs_isEmpty(t *testing.T) {
	small := filepath.Join(t.TempDir(), "small")
	if err := os.WriteFile(small, []byte("GGUF but not really"), 0o600); err != nil {
		t.Fatal(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, LimitBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{small, large, filepath.Join(t.TempDir(), "missing"), t.TempDir(), ""} {
		if got, ok := Read(path); got.Session != "" || ok {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestMarker_isSealedOnlyByWhoWroteIt(t *testing.T) {
	marker, _ := Read(stubFile(t, fake.ReadySession()))
	if !marker.SealedBy(key) {
		t.Error("its own key does not fit")
	}
	other, another := marker, marker
	other.Session, another.Concurrency = "s2", marker.Concurrency+1
	for name, fits := range map[string]bool{
		"another server's key": marker.SealedBy(seal.New()),
		"no key":               marker.SealedBy(nil),
		"another session":      other.SealedBy(key),
		"more at once":         another.SealedBy(key),
		"no seal":              Marker{Session: marker.Session, Concurrency: marker.Concurrency}.SealedBy(key),
	} {
		if fits {
			t.Errorf("%s fits", name)
		}
	}
}

func TestMarker_inWhatShowTells_isTheFiles(t *testing.T) {
	path := stubFile(t, fake.ReadySession())
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	model, err := ggml.Decode(file, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(model.KV())
	if err != nil {
		t.Fatal(err)
	}
	var told map[string]any
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	if marker, ok := In(told); !ok || !marker.SealedBy(key) {
		t.Errorf("%v", marker)
	}
	if marker, ok := In(map[string]any{"general.architecture": "llama", sessionKey: 7}); ok {
		t.Errorf("%v", marker)
	}
}
