package runner

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ollama/ollama/llm"

	"kafila/ollama/pb"
)

// linesOf are what stock reads of an answer.
func linesOf(t *testing.T, body string) []llm.CompletionResponse {
	t.Helper()
	var lines []llm.CompletionResponse
	for line := range strings.Lines(body) {
		var one llm.CompletionResponse
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, one)
	}
	return lines
}

func TestAnswer_logProbabilities_areToldOnceEachAndWithText(t *testing.T) {
	for name, framed := range map[string]bool{"framed": true, "plain": false} {
		recorder := httptest.NewRecorder()
		a := newAnswer(recorder, framed)
		told := []*pb.TokenLogprob{{Token: []byte("ha"), Logprob: -0.5, Top: []*pb.TokenLogprob{{Token: []byte{0xe6}, Logprob: -0.1}}}}
		const chunks = 60 // equal ones, of which some are joined
		for range chunks {
			a.text("ha", logprobs(told))
		}
		many := make([]*pb.TokenLogprob, 3*lineLimitScores)
		for i := range many {
			many[i] = told[0]
		}
		a.text("x", logprobs(many))
		a.done(&pb.GenerateReply{})
		count := 0
		for _, line := range linesOf(t, recorder.Body.String()) {
			if len(line.Logprobs) > 0 && line.Content == "" && !line.Done {
				t.Errorf("%s: stock passes this line over: %+v", name, line)
			}
			count += len(line.Logprobs)
			for _, one := range line.Logprobs {
				if one.Token != "ha" || one.Logprob != -0.5 || one.TopLogprobs[0].Token != "\ufffd" {
					t.Errorf("%s: %+v", name, one)
				}
			}
		}
		if count != chunks+len(many) {
			t.Errorf("%s: %d were told, of %d", name, count, chunks+len(many))
		}
	}
}
