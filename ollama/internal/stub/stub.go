// Package stub writes and reads the stub model: the small model file by which stock Ollama knows a session's model. The
// server writes it, the runner reads it. It imports seal and pb.
package stub

import (
	"bytes"
	"os"
	"strconv"

	"github.com/ollama/ollama/fs/ggml"
	"github.com/ollama/ollama/fs/gguf"

	"kafila/ollama/internal/seal"
	"kafila/ollama/pb"
)

const (
	// sessionKey marks a model file as a stub model; its value is the session's id.
	sessionKey = "general.kafila.session"
	// concurrencyKey makes the file another one, and so loaded anew, when the session takes more or fewer at once.
	concurrencyKey = "general.kafila.concurrency"
	// sealKey proves that this run of the server wrote the file: anybody can write the other two.
	sealKey = "general.kafila.seal"
	// ownerKey names the file that the server which wrote this holds locked for as long as it lives.
	ownerKey = "general.kafila.owner"
	// LimitBytes is well above any stub model (1.3 kB) and below any model: larger files are not searched.
	LimitBytes = 64 << 10
)

// metadata is all that a stub model has: no tensors, and a vocabulary in which any text is one unknown token, so that
// the stock server neither counts nor cuts prompts (the sidecar does, exactly). Counts of 1 keep stock's memory
// estimates near zero; the context and embedding lengths are true.
func metadata(session *pb.Session, key seal.Key, owner string) ggml.KV {
	model := session.Vehicle
	marker := Marker{Session: session.Id, Concurrency: session.Concurrency}
	return ggml.KV{
		sessionKey:                               session.Id,
		concurrencyKey:                           session.Concurrency,
		ownerKey:                                 owner,
		sealKey:                                  key.Of(seal.Stub, marker.words()...),
		"general.architecture":                   "llama",
		"general.type":                           "model",
		"general.name":                           model.Name,
		"llama.block_count":                      uint32(1),
		"llama.context_length":                   model.ContextLength,
		"llama.embedding_length":                 model.EmbeddingLength,
		"llama.feed_forward_length":              uint32(1),
		"llama.attention.head_count":             uint32(1),
		"llama.attention.head_count_kv":          uint32(1),
		"llama.attention.key_length":             uint32(1),
		"llama.attention.value_length":           uint32(1),
		"llama.rope.dimension_count":             uint32(1),
		"tokenizer.ggml.model":                   "t5",
		"tokenizer.ggml.pre":                     "default",
		"tokenizer.ggml.tokens":                  []string{"\x01kafila-pad\x01", "\x01kafila-end\x01", "<unk>"},
		"tokenizer.ggml.scores":                  []float32{0, 0, 0},
		"tokenizer.ggml.token_type":              []int32{3, 3, 2}, // control, control, unknown
		"tokenizer.ggml.padding_token_id":        uint32(0),
		"tokenizer.ggml.eos_token_id":            uint32(1),
		"tokenizer.ggml.unknown_token_id":        uint32(2),
		"tokenizer.ggml.add_bos_token":           false,
		"tokenizer.ggml.add_eos_token":           false,
		"tokenizer.ggml.add_space_prefix":        false,
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5),
	}
}

// Write writes the stub model of a session for the server that holds the file owner locked; with one key and owner, equal
// sessions give equal bytes.
func Write(f *os.File, session *pb.Session, key seal.Key, owner string) error {
	return ggml.WriteGGUF(f, metadata(session, key, owner), nil)
}

// A Marker is what makes a model file a stub model, or claims to.
type Marker struct {
	Session     string // its full id
	Concurrency uint32
	Owner       string // the file that its server holds locked, as it says; "" for none
	seal        string
}

func (m Marker) words() []string {
	return []string{m.Session, strconv.FormatUint(uint64(m.Concurrency), 10)}
}

// SealedBy is true if the holder of the key has written it.
func (m Marker) SealedBy(key seal.Key) bool {
	return key.Fits(m.seal, seal.Stub, m.words()...)
}

// Claims is true of a model file that holds our marker's name anywhere, sealed or not. It reads nothing into the file, so
// that it may be asked of anybody's.
func Claims(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() > LimitBytes {
		return false
	}
	content, err := os.ReadFile(path)
	return err == nil && bytes.Contains(content, []byte(sessionKey))
}

// Read gives the marker of a model file. Any other file has none.
func Read(path string) (Marker, bool) {
	if !Claims(path) {
		return Marker{}, false
	}
	file, err := gguf.Open(path)
	if err != nil {
		return Marker{}, false
	}
	defer file.Close()
	marker := Marker{
		Session:     file.KeyValue(sessionKey).String(),
		Concurrency: uint32(file.KeyValue(concurrencyKey).Uint()),
		Owner:       file.KeyValue(ownerKey).String(),
		seal:        file.KeyValue(sealKey).String(),
	}
	return marker, marker.Session != ""
}

// In gives the marker in what stock's `show` tells of a model.
func In(info map[string]any) (Marker, bool) {
	session, _ := info[sessionKey].(string)
	concurrency, _ := info[concurrencyKey].(float64)
	sealed, _ := info[sealKey].(string)
	owner, _ := info[ownerKey].(string)
	return Marker{Session: session, Concurrency: uint32(concurrency), Owner: owner, seal: sealed}, session != ""
}
