// Package headway is how far an answer is that has no text yet: a session's runner says it to the server in lines that
// stock reads over, the server to a command line that asks for it, and that shows it to a person below stock's spinner.
// It imports only pb.
package headway

import (
	"bytes"
	"encoding/json"

	"kafila/ollama/pb"
)

// Header is on a request whose answer may have such lines.
const Header = "Kafila-Headway"

// MostLines follow one another without text between them: stock takes 31 lines of equal content for a model that loops.
const MostLines = 25

// What may be done for an answer that has no text yet.
const (
	Waiting     = "waiting" // for its turn
	Interrupted = "interrupted"
	Reading     = "reading"
)

// An Update is one line.
type Update struct {
	Doing  string `json:"doing"`
	Tokens uint32 `json:"tokens,omitempty"`
	Of     uint32 `json:"of,omitempty"`
}

// Told is what the sidecar says.
func Told(by *pb.Headway) Update { return Update{by.Doing, by.Tokens, by.Of} }

var (
	lineStart = []byte(`{"kafila_headway":`)
	lineEnd   = []byte("}")
)

// Line gives the update as a line, its end included.
func (u Update) Line() []byte {
	body, err := json.Marshal(u)
	if err != nil {
		body = []byte(`{}`)
	}
	return append(append(append([]byte{}, lineStart...), body...), "}\n"...)
}

// In reads a line. Stock's begin with another field, and what an answer says stands quoted in them.
func In(line []byte) (u Update, ok bool) {
	body, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), lineStart)
	if !ok {
		return u, false
	}
	err := json.Unmarshal(bytes.TrimSuffix(body, lineEnd), &u)
	return u, err == nil
}
