package envelope

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ollama/ollama/api"
)

const frameStart = '\x1e'

// A Frame is one chunk of an answer: "\x1e" and a JSON object with a sequence number `n` and one of the others. The
// number keeps stock from taking 31 equal chunks for a model that loops.
type Frame struct {
	Number   uint64                `json:"n"`
	Content  string                `json:"c,omitempty"`
	Thinking string                `json:"t,omitempty"`
	Call     *api.ToolCallFunction `json:"call,omitempty"`
	Error    string                `json:"error,omitempty"`
}

// Encode gives the frame's text on the wire.
func (f Frame) Encode() string {
	body, err := json.Marshal(f)
	if err != nil {
		body = []byte(`{"error":"the answer could not be framed"}`)
	}
	return string(frameStart) + string(body)
}

// frameParser reads frames, which may arrive in pieces or several at once. An answer that doesn't begin with a frame
// belongs to a prompt without envelope (a `template` in the request) and is passed on unchanged.
type frameParser struct {
	tools, thinking bool

	started, plain bool
	pending        string // the beginning of a frame whose end hasn't come
	calls          int
}

func (p *frameParser) Init(tools []api.Tool, _ *api.Message, _ *api.ThinkValue) []api.Tool {
	return tools
}

func (p *frameParser) HasToolSupport() bool { return p.tools }

func (p *frameParser) HasThinkingSupport() bool { return p.thinking }

// Add returns what the frames that are complete by now say. An error frame ends the answer with its sentence.
func (p *frameParser) Add(s string, done bool) (content, thinking string, calls []api.ToolCall, err error) {
	if !p.started && s != "" {
		p.started, p.plain = true, s[0] != frameStart
	}
	if p.plain {
		return s, "", nil, nil
	}
	p.pending += s
	for {
		f, ok, err := p.next()
		if err != nil {
			return "", "", nil, err
		}
		if !ok {
			break
		}
		content += f.Content
		thinking += f.Thinking
		if f.Call != nil {
			f.Call.Index = p.calls
			p.calls++
			calls = append(calls, api.ToolCall{Function: *f.Call})
		}
	}
	if done && p.pending != "" {
		return "", "", nil, errors.New("the answer ended in the middle of a frame")
	}
	return content, thinking, calls, nil
}

// next takes one complete frame off the pending text, if there is one.
func (p *frameParser) next() (Frame, bool, error) {
	if p.pending == "" {
		return Frame{}, false, nil
	}
	if p.pending[0] != frameStart {
		return Frame{}, false, fmt.Errorf("the answer holds text outside of its frames: %.40q", p.pending)
	}
	body, rest := p.pending[1:], ""
	if i := strings.IndexByte(body, frameStart); i >= 0 {
		body, rest = body[:i], body[i:]
	} else if !json.Valid([]byte(body)) {
		return Frame{}, false, nil
	}
	var f Frame
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		return Frame{}, false, fmt.Errorf("the answer holds a malformed frame: %w", err)
	}
	p.pending = rest
	if f.Error != "" {
		return Frame{}, false, errors.New(f.Error)
	}
	return f, true, nil
}
