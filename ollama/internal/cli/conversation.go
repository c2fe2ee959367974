package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/ollama/ollama/types/errtypes"

	"kafila/ollama/internal/called"
	"kafila/ollama/internal/foreign"
	"kafila/ollama/internal/sessionapi"
)

// A conversation carries what stock's prompt sends and gets. A session's model may fail to answer where one on this
// machine can't: a member was lost, the ring is planned anew, the server starts again. Stock's prompt ends at any failure,
// and the conversation with it. Here a failure is told, and counts as an answer that was broken off, so that the person
// is at the prompt again and can say more. It is for the interactive prompt alone; a single question fails as ever.
type conversation struct {
	below http.RoundTripper
	tells io.Writer
}

func (c conversation) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && r.Body != nil {
		switch r.URL.Path {
		case "/api/chat":
			return c.chat(r)
		case "/api/create":
			return c.save(r)
		}
	}
	return c.below.RoundTrip(r)
}

func (c conversation) chat(r *http.Request) (*http.Response, error) {
	said, err := taken(r)
	if err != nil {
		return nil, err
	}
	said, isOurs := inTurns(said)
	answer, err := c.below.RoundTrip(with(r, said))
	switch {
	case !isOurs || r.Context().Err() != nil:
		return answer, err
	case err != nil:
		return nil, c.brokenOff("the server can't be asked: " + err.Error())
	case answer.StatusCode >= http.StatusBadRequest:
		return nil, c.brokenOff(refusal(answer))
	}
	answer.Body = c.untilItFails(answer.Body)
	return answer, nil
}

// save is /save. Stock's prompt goes on after one failure alone, that of the new model's name: it says so below the reason.
func (c conversation) save(r *http.Request) (*http.Response, error) {
	said, err := taken(r)
	if err != nil {
		return nil, err
	}
	var made struct{ From string }
	answer, err := c.below.RoundTrip(with(r, said))
	if err != nil || answer.StatusCode < http.StatusBadRequest || json.Unmarshal(said, &made) != nil || !sessionapi.IsModel(made.From) {
		return answer, err
	}
	fmt.Fprint(c.tells, c.sentence(refusal(answer)))
	return nil, errors.New(errtypes.InvalidModelNameErrMsg)
}

// taken is what a request says, which has to be put back by with.
func taken(r *http.Request) ([]byte, error) {
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

func with(r *http.Request, said []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(said)), int64(len(said))
	return r
}

// refusal is the sentence of an answer that is none.
func refusal(answer *http.Response) string {
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, sessionapi.BodyLimitBytes))
	if why := sessionapi.ErrorIn(body); err == nil && why != "" {
		return why
	}
	return answer.Status
}

// brokenOff tells why there is no answer, in place of stock's spinner.
func (c conversation) brokenOff(why string) error {
	const beginning, restOfLine = "\r", "\x1b[K"
	fmt.Fprint(c.tells, beginning+restOfLine+c.sentence(why))
	return fmt.Errorf("not answered: %w", context.Canceled)
}

func (c conversation) sentence(why string) string {
	return "Error: " + called.Words(called.Name(), foreign.Line(why)) + "\nThe conversation is kept: say more, or ask again.\n"
}

// inTurns is a chat's request in which who speaks alternates, as many models' templates want it: an answer that was
// broken off before its first word leaves two messages of the person side by side. Whether it asks a session's model is
// the second result; requests to others stay as they are.
func inTurns(request []byte) ([]byte, bool) {
	var chat map[string]json.RawMessage
	var model string
	var messages []map[string]any
	if json.Unmarshal(request, &chat) != nil || json.Unmarshal(chat["model"], &model) != nil || !sessionapi.IsModel(model) {
		return request, false
	}
	if json.Unmarshal(chat["messages"], &messages) != nil {
		return request, true
	}
	turns := takeTurns(messages)
	if len(turns) == len(messages) {
		return request, true
	}
	var err error
	if chat["messages"], err = json.Marshal(turns); err != nil {
		return request, true
	}
	if joined, err := json.Marshal(chat); err == nil {
		request = joined
	}
	return request, true
}

func takeTurns(messages []map[string]any) []map[string]any {
	var turns []map[string]any
	for _, message := range messages {
		if isPlain(message, "assistant") && message["content"] == "" {
			continue
		}
		if last := len(turns) - 1; last >= 0 && isPlain(message, "user") && isPlain(turns[last], "user") {
			turns[last] = map[string]any{"role": "user", "content": fmt.Sprint(turns[last]["content"], "\n\n", message["content"])}
			continue
		}
		turns = append(turns, message)
	}
	return turns
}

// isPlain is true of a message of text alone.
func isPlain(message map[string]any, role string) bool {
	_, isText := message["content"].(string)
	return isText && message["role"] == role && len(message) == 2
}

// untilItFails passes an answer on up to the line that says it failed, which is told.
func (c conversation) untilItFails(answer io.ReadCloser) io.ReadCloser {
	passed, pass := io.Pipe()
	go func() {
		defer answer.Close()
		lines := bufio.NewReaderSize(answer, sessionapi.BodyLimitBytes)
		for {
			line, err := lines.ReadBytes('\n')
			why := sessionapi.ErrorIn(line)
			if why == "" && err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
				why = "the server broke the answer off: " + err.Error()
			}
			if why != "" {
				fmt.Fprint(c.tells, "\n\n"+c.sentence(why))
				pass.Close()
				return
			}
			if _, broken := pass.Write(line); broken != nil || err != nil {
				pass.CloseWithError(err)
				return
			}
		}
	}()
	return passed
}
