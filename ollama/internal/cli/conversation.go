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
	if r.Method != http.MethodPost || r.URL.Path != "/api/chat" || r.Body == nil {
		return c.below.RoundTrip(r)
	}
	said, err := io.ReadAll(r.Body)
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	said, isOurs := inTurns(said)
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(said)), int64(len(said))
	answer, err := c.below.RoundTrip(r)
	switch {
	case !isOurs || r.Context().Err() != nil:
		return answer, err
	case err != nil:
		return nil, c.brokenOff("the server can't be asked: " + err.Error())
	case answer.StatusCode >= http.StatusBadRequest:
		defer answer.Body.Close()
		body, err := io.ReadAll(io.LimitReader(answer.Body, sessionapi.BodyLimitBytes))
		if err != nil {
			body = nil
		}
		why := sessionapi.ErrorIn(body)
		if why == "" {
			why = answer.Status
		}
		return nil, c.brokenOff(why)
	}
	answer.Body = c.untilItFails(answer.Body)
	return answer, nil
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
