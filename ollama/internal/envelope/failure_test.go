package envelope

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/ollama/ollama/llm"
)

func TestFailure_isReadBack_andIsNothingToStock(t *testing.T) {
	said := Failure{Status: 504, Sentence: "bob was lost:\n\"nobody\" went on"}
	line := said.Line()
	if read, ok := FailureIn(bytes.TrimSuffix(line, []byte("\n"))); !ok || read != said {
		t.Errorf("%+v from %s", read, line)
	}
	var completion llm.CompletionResponse
	if err := json.Unmarshal(line, &completion); err != nil || completion.Content != "" || completion.Done {
		t.Errorf("stock reads %+v, %v", completion, err)
	}
	for _, other := range []string{`{"content":"{\"kafila_failure\":{}}"}`, `{"kafila_failure":`, ``, `{}`} {
		if _, ok := FailureIn([]byte(other)); ok {
			t.Errorf("%q is taken for a failure", other)
		}
	}
}
