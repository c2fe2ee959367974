// Package stub writes and reads the stub model: the small model file by which stock Ollama knows a session's model. The
// server writes it, the runner reads it. It imports only pb.
package stub

import (
	"os"

	"github.com/ollama/ollama/fs/ggml"
	"github.com/ollama/ollama/fs/gguf"

	"kafila/ollama/pb"
)

const (
	// sessionKey marks a model file as ours; its value is the session's id.
	sessionKey = "general.kafila.session"
	// concurrencyKey makes the file another one, and so loaded anew, when the session takes more or fewer at once.
	concurrencyKey = "general.kafila.concurrency"
	// limitBytes is well above any stub model (1.2 kB) and below any model: larger files are not searched.
	limitBytes = 64 << 10
)

// metadata is all that a stub model has: no tensors, and a vocabulary in which any text is one unknown token, so that
// the stock server neither counts nor cuts prompts (the sidecar does, exactly). Counts of 1 keep stock's memory
// estimates near zero; the context and embedding lengths are true.
func metadata(session *pb.Session) ggml.KV {
	model := session.Vehicle
	return ggml.KV{
		sessionKey:                               session.Id,
		concurrencyKey:                           session.Concurrency,
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

// Write writes the stub model of a session; equal sessions give equal bytes.
func Write(f *os.File, session *pb.Session) error {
	return ggml.WriteGGUF(f, metadata(session), nil)
}

// SessionOf returns the id of the session that a model file stands for, or "" for any other file.
func SessionOf(path string) string {
	info, err := os.Stat(path)
	if err != nil || info.Size() > limitBytes {
		return ""
	}
	file, err := gguf.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	return file.KeyValue(sessionKey).String()
}
