package envelope

import (
	"bytes"
	"encoding/json"
)

// SessionHeader is on every completion of a session's model.
const SessionHeader = "Kafila-Session"

// A Failure is why an answer ended within, as the runner tells our own server: in a line that stock reads over, since
// it has none of the fields that stock knows.
type Failure struct {
	Status   int    `json:"status"` // of HTTP
	Sentence string `json:"sentence"`
}

var (
	failureStart = []byte(`{"kafila_failure":`)
	failureEnd   = []byte("}")
)

// Line gives the failure as a line of a completion, its end included.
func (f Failure) Line() []byte {
	body, err := json.Marshal(f)
	if err != nil {
		body = []byte(`{}`)
	}
	return append(append(append([]byte{}, failureStart...), body...), "}\n"...)
}

// FailureIn reads a line of a completion, without its end. A line of stock's begins with another field, and what an answer
// says stands quoted in it, so that no answer can look like this.
func FailureIn(line []byte) (f Failure, ok bool) {
	body, ok := bytes.CutPrefix(line, failureStart)
	if !ok {
		return f, false
	}
	err := json.Unmarshal(bytes.TrimSuffix(body, failureEnd), &f)
	return f, err == nil
}
