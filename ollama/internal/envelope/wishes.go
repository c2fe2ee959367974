package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Wishes are what a client asks of a session's model and stock does not pass on, or must not see. Our own server puts
// them at the beginning of stock's completion on its way to the runner.
type Wishes struct {
	NumCtx  int     `json:"num_ctx,omitempty"` // 0: the session's
	Context []int32 `json:"context,omitempty"` // token ids that the prompt goes on from
	Suffix  string  `json:"suffix,omitempty"`  // what comes after the answer: the prompt is what comes before it
	// Format is "json" or a JSON schema as it was written. Strict refuses a schema that can't be held to as a whole.
	Format json.RawMessage `json:"format,omitempty"`
	Strict bool            `json:"strict,omitempty"`
	// Tools are the definitions as they were written, in the form of Ollama's own API; they take the place of stock's.
	Tools json.RawMessage `json:"tools,omitempty"`
	// Guesses is how many tokens a step may guess, at most; nil: as many as the session lets it.
	Guesses *uint32 `json:"guesses,omitempty"`
	// Whole has a text that is too long to be embedded refused; else its beginning is.
	Whole bool `json:"whole,omitempty"`
	// TellsContext has the runner say, in lines that stock reads over, the ids of prompt and answer.
	TellsContext bool `json:"tells_context,omitempty"`
	// TellsHeadway has the runner say, in lines that stock reads over, how far the answer is before it has text.
	TellsHeadway bool `json:"tells_headway,omitempty"`
}

// WishesKey is the field of a completion that holds them.
const WishesKey = "kafila"

// Put gives a copy of a completion on its way that begins with the wishes.
func (w Wishes) Put(r *http.Request) (*http.Request, error) {
	body, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	stock, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(stock, " \n"), []byte("{"))
	if !ok {
		return nil, fmt.Errorf("stock's completion is no object: %.40q", stock)
	}
	joined := append(fmt.Appendf(nil, `{%q:%s,`, WishesKey, body), rest...)
	with := r.Clone(r.Context())
	with.ContentLength = int64(len(joined))
	with.Body = io.NopCloser(bytes.NewReader(joined))
	with.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(joined)), nil }
	return with, r.Body.Close()
}

var (
	contextStart = []byte(`{"kafila_context":`)
	contextEnd   = []byte("}")
)

// mostIDs in a line keep it well below the 512 kB at which stock gives up reading.
const mostIDs = 32 << 10

// ContextLines gives the ids of prompt and answer as lines of a completion, their ends included.
func ContextLines(ids []uint32) []byte {
	var lines []byte
	for len(ids) > 0 {
		some := ids[:min(len(ids), mostIDs)]
		ids = ids[len(some):]
		body, err := json.Marshal(some)
		if err != nil {
			return nil
		}
		lines = append(append(append(append(lines, contextStart...), body...), contextEnd...), '\n')
	}
	return lines
}

// ContextIn reads a line of a completion, without its end, as FailureIn does.
func ContextIn(line []byte) (ids []uint32, ok bool) {
	body, ok := bytes.CutPrefix(line, contextStart)
	if !ok {
		return nil, false
	}
	err := json.Unmarshal(bytes.TrimSuffix(body, contextEnd), &ids)
	return ids, err == nil
}
