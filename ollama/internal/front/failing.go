package front

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/ollama/ollama/anthropic"
	"github.com/ollama/ollama/openai"

	"kafila/ollama/internal/envelope"
)

// failureIn gives a failure as the JSON object that an API tells errors by.
func failureIn(path string, failure envelope.Failure) []byte {
	var object any = map[string]string{"error": failure.Sentence}
	switch {
	case path == "/v1/messages":
		object = anthropic.NewError(failure.Status, failure.Sentence)
	case strings.HasPrefix(path, "/v1/"):
		object = openai.NewError(failure.Status, failure.Sentence)
	}
	body, err := json.Marshal(object)
	if err != nil {
		body = []byte("{}")
	}
	return append(body, '\n')
}

// fail answers a request of which nothing was answered yet.
func fail(w http.ResponseWriter, path string, failure envelope.Failure) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(failure.Status)
	w.Write(failureIn(path, failure)) //nolint:errcheck // the client is gone, and nobody else would hear it
}
