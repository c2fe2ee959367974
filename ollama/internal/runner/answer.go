package runner

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ollama/ollama/llm"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/headway"
	"kafila/ollama/pb"
)

const (
	// lineLimitBytes keeps a line, with every byte escaped, below the 512 kB at which stock gives up reading.
	lineLimitBytes = 64 << 10
	// equalChunksLimit is where we begin to join chunks: stock takes 31 equal ones in a row for a model that loops
	// and cuts the answer off.
	equalChunksLimit = 25
	// lineLimitScores does the same for log probabilities, each of which comes with up to twenty others.
	lineLimitScores = 100
)

// An answer writes a completion as the lines that stock reads, the header only with the first of them, so that a
// refusal before any text keeps its status.
type answer struct {
	w      http.ResponseWriter
	framed bool // the prompt came in an envelope, so a parser reads frames at the other end

	begun   bool
	last    string // the last chunk's text without surrounding space, as stock compares it
	repeats int
	held    string
	updates int           // since the last text
	scores  []llm.Logprob // of the tokens that are held
}

func newAnswer(w http.ResponseWriter, framed bool) *answer {
	return &answer{w: w, framed: framed}
}

// text passes a chunk on, in pieces where it is very long, joined with the next ones where it repeats.
func (a *answer) text(chunk string, scores []llm.Logprob) {
	a.updates = 0
	a.held += chunk
	a.scores = append(a.scores, scores...)
	trimmed := strings.TrimSpace(a.held)
	if trimmed == a.last {
		a.repeats++
		if a.repeats > equalChunksLimit {
			return
		}
	} else {
		a.last, a.repeats = trimmed, 0
	}
	a.flush()
}

// flush writes what is held back. Stock passes over log probabilities without text, but for the last line's.
func (a *answer) flush() {
	for a.held != "" {
		piece := cut(a.held, lineLimitBytes)
		a.held = a.held[len(piece):]
		some := a.scores[:min(len(a.scores), lineLimitScores)]
		if a.held == "" && len(some) < len(a.scores) && a.framed {
			a.held = envelope.Frame{}.Encode() // for the rest
		}
		a.scores = a.scores[len(some):]
		a.line(llm.CompletionResponse{Content: piece, Logprobs: some})
	}
}

// logprobs are as stock has them, but for a part of a character: that is no text on the way.
func logprobs(told []*pb.TokenLogprob) []llm.Logprob {
	var made []llm.Logprob
	for _, one := range told {
		score := llm.Logprob{TokenLogprob: tokenLogprob(one)}
		for _, other := range one.Top {
			score.TopLogprobs = append(score.TopLogprobs, tokenLogprob(other))
		}
		made = append(made, score)
	}
	return made
}

func tokenLogprob(told *pb.TokenLogprob) llm.TokenLogprob {
	return llm.TokenLogprob{Token: string(told.Token), Logprob: told.Logprob}
}

// cut gives the longest beginning of at most limit bytes that ends between characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// done writes the last line, which stock wants without content.
func (a *answer) done(reply *pb.GenerateReply) {
	a.flush()
	a.line(llm.CompletionResponse{
		Done:               true,
		Logprobs:           a.scores,
		DoneReason:         llm.DoneReason(reply.DoneReason),
		PromptEvalCount:    int(reply.PromptTokens),
		PromptEvalDuration: seconds(reply.PromptS),
		EvalCount:          int(reply.OutputTokens),
		EvalDuration:       seconds(reply.OutputS),
	})
}

// context tells our own server the ids of prompt and answer, where it asked for them. Stock reads over it.
func (a *answer) context(ids []uint32) {
	if len(ids) == 0 {
		return
	}
	a.flush()
	a.begin()
	if _, err := a.w.Write(envelope.ContextLines(ids)); err != nil {
		slog.Debug("runner_context_not_sent", "error", err)
	}
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second))
}

func (a *answer) begin() {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/x-ndjson")
	}
}

// headway tells our own server how far the answer is. Stock reads over it.
func (a *answer) headway(u headway.Update) {
	if a.updates++; a.updates > headway.MostLines {
		return
	}
	a.flush()
	a.begin()
	if _, err := a.w.Write(u.Line()); err != nil {
		slog.Debug("runner_headway_not_sent", "error", err)
		return
	}
	a.flushOut()
}

func (a *answer) line(response llm.CompletionResponse) {
	a.begin()
	if err := json.NewEncoder(a.w).Encode(response); err != nil {
		slog.Debug("runner_line_not_sent", "error", err)
		return
	}
	a.flushOut()
}

// flushOut sends what was written: who takes the connection over would lose it.
func (a *answer) flushOut() {
	if flusher, ok := a.w.(http.Flusher); ok {
		flusher.Flush()
	}
}

// fail ends the answer with an error: as a status before any text, as an error frame where frames are read, else by
// breaking the stream. Ending without `done` alone would look like success to stock, and a connection that is just
// dropped makes it kill this runner with all its other answers.
func (a *answer) fail(code int, sentence string) {
	slog.Warn("session_answer_failed", "status", code, "reason", sentence)
	switch {
	case !a.begun && a.held == "":
		http.Error(a.w, sentence, code)
	case a.framed:
		a.flush()
		a.tell(envelope.Failure{Status: code, Sentence: sentence})
		a.line(llm.CompletionResponse{Content: envelope.Frame{Error: sentence}.Encode()})
	default:
		a.flush()
		a.tell(envelope.Failure{Status: code, Sentence: sentence})
		a.breakOff(sentence)
	}
}

// tell has our own server know of a failure before stock does, for APIs in which stock passes it over.
func (a *answer) tell(failure envelope.Failure) {
	if _, err := a.w.Write(failure.Line()); err != nil {
		slog.Debug("runner_error_not_sent", "error", err)
		return
	}
	a.flushOut()
}

// breakOff ends the chunked body with a trailer that is no header line. The reader's error quotes it, so the sentence
// gets through; a quotation mark can't begin a header's name.
func (a *answer) breakOff(sentence string) {
	controller := http.NewResponseController(a.w)
	conn, buffered, err := controller.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	oneLine := strings.Join(strings.Fields(sentence), " ")
	fmt.Fprintf(buffered, "0\r\n\"%s\"\r\n\r\n", oneLine)
	if err := buffered.Flush(); err != nil {
		slog.Debug("runner_error_not_sent", "error", err)
	}
}
