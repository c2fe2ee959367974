package sidecar

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// spoken begins the line in which a sidecar that can't go on says why.
const spoken = "kafila-sidecar: "

// longestSentence is how many bytes of a line count.
const longestSentence = 2000

// lastWords passes a sidecar's standard error on and remembers the last such line.
type lastWords struct {
	out io.Writer

	mu   sync.Mutex
	line []byte // as far as it has come, and no longer than counts
	last string
}

func (w *lastWords) Write(text []byte) (int, error) {
	w.mu.Lock()
	for _, part := range bytes.SplitAfter(text, []byte("\n")) {
		w.line = append(w.line, part[:min(len(part), longestSentence-len(w.line))]...)
		if bytes.HasSuffix(part, []byte("\n")) {
			w.ended()
		}
	}
	w.mu.Unlock()
	w.out.Write(text) //nolint:errcheck // a log that can't be written must not end the sidecar
	return len(text), nil
}

// ended takes note of a whole line.
func (w *lastWords) ended() {
	if sentence, ok := strings.CutPrefix(strings.TrimSpace(string(w.line)), spoken); ok {
		w.last = sentence
	}
	w.line = w.line[:0]
}

// sentence is why the sidecar ended, by its own words; empty when it said nothing.
func (w *lastWords) sentence() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended()
	return w.last
}
