package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

const unexplained = 2 * time.Second // a wait that nobody wonders at

// Patience tells a person who waits for an answer what the session does meanwhile: reads a long prompt, answers others,
// or is planned anew. watch hears of the session whose model is asked until its context ends.
type patience struct {
	below http.RoundTripper
	tells io.Writer
	watch func(ctx context.Context, model string, each func(*pb.Session) error)
	after time.Duration
}

func (p patience) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || r.Body == nil || r.URL.Path != "/api/chat" && r.URL.Path != "/api/generate" {
		return p.below.RoundTrip(r)
	}
	said, err := taken(r)
	if err != nil {
		return nil, err
	}
	var asked struct{ Model string }
	if json.Unmarshal(said, &asked) != nil {
		asked.Model = ""
	}
	ctx, cancel := context.WithCancel(r.Context())
	waiting := &wait{tells: p.tells, since: time.Now(), after: p.after}
	go p.watch(ctx, asked.Model, waiting.see)
	answer, err := p.below.RoundTrip(with(r, said))
	if err != nil {
		cancel()
		return nil, err
	}
	answer.Body = &awaited{answer.Body, waiting, cancel}
	return answer, nil
}

// A wait is one answer's.
type wait struct {
	tells io.Writer
	since time.Time
	after time.Duration
	last  string
	begun atomic.Bool // its first word is there
}

func (w *wait) see(now *pb.Session) error {
	line := text.Meanwhile(now)
	if line == w.last || time.Since(w.since) < w.after {
		return nil
	}
	w.last = line
	switch {
	case line == "":
	case !w.begun.Load():
		const beginning, restOfLine = "\r", "\x1b[K"
		fmt.Fprintln(w.tells, beginning+restOfLine+line)
	case now.Activity == nil: // while it is answered, that speaks for itself
		fmt.Fprintln(w.tells, "\n["+line+"]")
	}
	return nil
}

type awaited struct {
	io.ReadCloser
	waiting *wait
	cancel  func()
}

func (a *awaited) Read(into []byte) (int, error) {
	n, err := a.ReadCloser.Read(into)
	if n > 0 {
		a.waiting.begun.Store(true)
	}
	return n, err
}

func (a *awaited) Close() error {
	a.cancel()
	return a.ReadCloser.Close()
}

// watchModel follows the session that a model is of; not to hear of it is no failure.
func watchModel(c *control.Client) func(context.Context, string, func(*pb.Session) error) {
	return func(ctx context.Context, model string, each func(*pb.Session) error) {
		if session, err := sessionOfModel(ctx, c, model); err == nil && session != nil {
			c.Watch(ctx, session.Id, each)
		}
	}
}
