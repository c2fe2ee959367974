package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/model/parsers"
	"github.com/ollama/ollama/model/renderers"
)

// Messages travel to the sidecar unrendered, since the model's own chat template is applied there: an envelope is
// "\x02kafila1 {…}\x03". JSON never holds a raw control character, so both ends can be found in any text.
const (
	envelopeStart = "\x02kafila1 "
	envelopeEnd   = "\x03"
	frameStart    = '\x1e'
)

const rendererName = "kafila"

// The parsers differ in what `show` and the stock handlers may expect of the model, not in how they read frames.
func init() {
	renderers.Register(rendererName, func() renderers.Renderer { return envelopeRenderer{} })
	for name, parser := range map[string]frameParser{
		"kafila":             {},
		"kafila-tools":       {tools: true},
		"kafila-think":       {thinking: true},
		"kafila-tools-think": {tools: true, thinking: true},
	} {
		parsers.Register(name, func() parsers.Parser { return &frameParser{tools: parser.tools, thinking: parser.thinking} })
	}
}

type envelopeRenderer struct{}

// Render packs the messages as they are. Images are left out: how many came is told to the sidecar beside the prompt.
func (envelopeRenderer) Render(messages []api.Message, tools []api.Tool, think *api.ThinkValue) (string, error) {
	plain := make([]api.Message, len(messages))
	for i, message := range messages {
		message.Images = nil
		plain[i] = message
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Messages []api.Message   `json:"messages"`
		Tools    []api.Tool      `json:"tools"`
		Think    *api.ThinkValue `json:"think"`
	}{plain, append([]api.Tool{}, tools...), think})
	if err != nil {
		return "", err
	}
	return envelopeStart + strings.TrimRight(body.String(), "\n") + envelopeEnd, nil
}

// envelopeIn returns the envelope within a prompt. Stock puts the deprecated `context` of a generate request before
// it; the null vocabulary can't say what was in there, so that is dropped.
func envelopeIn(prompt string) (string, bool) {
	start := strings.Index(prompt, envelopeStart)
	if start < 0 {
		return prompt, false
	}
	envelope := prompt[start:]
	if end := strings.Index(envelope, envelopeEnd); end >= 0 {
		envelope = envelope[:end+len(envelopeEnd)]
	}
	return envelope, true
}

// A frame is one chunk of an answer: "\x1e" and a JSON object with a sequence number `n` and one of the others. The
// number keeps stock from taking 31 equal chunks for a model that loops.
type frame struct {
	Number   uint64                `json:"n"`
	Content  string                `json:"c,omitempty"`
	Thinking string                `json:"t,omitempty"`
	Call     *api.ToolCallFunction `json:"call,omitempty"`
	Error    string                `json:"error,omitempty"`
}

// encode gives the frame's text on the wire.
func (f frame) encode() string {
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
func (p *frameParser) next() (frame, bool, error) {
	if p.pending == "" {
		return frame{}, false, nil
	}
	if p.pending[0] != frameStart {
		return frame{}, false, fmt.Errorf("the answer holds text outside of its frames: %.40q", p.pending)
	}
	body, rest := p.pending[1:], ""
	if i := strings.IndexByte(body, frameStart); i >= 0 {
		body, rest = body[:i], body[i:]
	} else if !json.Valid([]byte(body)) {
		return frame{}, false, nil
	}
	var f frame
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		return frame{}, false, fmt.Errorf("the answer holds a malformed frame: %w", err)
	}
	p.pending = rest
	if f.Error != "" {
		return frame{}, false, errors.New(f.Error)
	}
	return f, true, nil
}
