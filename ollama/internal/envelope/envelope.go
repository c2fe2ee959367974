// Package envelope is how messages travel to the sidecar, and how its answers come back as frames: the renderer and the
// parsers that stock's server runs for a session's model. It imports nothing of ours.
package envelope

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/model/parsers"
	"github.com/ollama/ollama/model/renderers"
)

// Messages travel to the sidecar unrendered, since the model's own chat template is applied there: an envelope is
// "\x02kafila1 {…}\x03". On its way through stock to the runner a seal stands before the "{", which nobody else can
// make: what a client writes as a prompt is text, whatever it looks like.
const (
	Start = "\x02kafila1 "
	End   = "\x03"
)

// A Sealer makes the seal of an envelope's body.
type Sealer func(body string) string

// RendererName is what a stub model names as its renderer.
const RendererName = "kafila"

// Register makes renderer and parsers known to the stock server in this process. The parsers differ in what `show` and
// the stock handlers may expect of the model, not in how they read frames.
func Register(seal Sealer) {
	renderers.Register(RendererName, func() renderers.Renderer { return renderer{seal} })
	for name, parser := range map[string]frameParser{
		"kafila":             {},
		"kafila-tools":       {tools: true},
		"kafila-think":       {thinking: true},
		"kafila-tools-think": {tools: true, thinking: true},
	} {
		parsers.Register(name, func() parsers.Parser { return &frameParser{tools: parser.tools, thinking: parser.thinking} })
	}
	parsers.Register(levelsName, func() parsers.Parser { return &levelsParser{} })
}

// body is what an envelope holds.
type body struct {
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Think    json.RawMessage `json:"think"`
}

// WithTools gives an opened envelope with other definitions of its tools, where it has some and there are some; and whether
// it has any.
func WithTools(prompt string, tools json.RawMessage) (string, bool) {
	var b body
	inner := strings.TrimSuffix(strings.TrimPrefix(prompt, Start), End)
	if json.Unmarshal([]byte(inner), &b) != nil || len(b.Tools) <= len("[]") {
		return prompt, false
	}
	if len(tools) == 0 {
		return prompt, true
	}
	b.Tools = tools
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(b) != nil {
		return prompt, true
	}
	return Start + strings.TrimRight(written.String(), "\n") + End, true
}

type renderer struct{ seal Sealer }

// Render packs the messages as they are. Images are left out: how many came is told to the sidecar beside the prompt.
func (r renderer) Render(messages []api.Message, tools []api.Tool, think *api.ThinkValue) (string, error) {
	plain := make([]api.Message, len(messages))
	for i, message := range messages {
		message.Images = nil
		plain[i] = message
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Begun    bool            `json:"begun"` // first, see IsBegun
		Messages []api.Message   `json:"messages"`
		Tools    []api.Tool      `json:"tools"`
		Think    *api.ThinkValue `json:"think"`
	}{isBegun(messages), plain, append([]api.Tool{}, tools...), think})
	if err != nil {
		return "", err
	}
	text := strings.TrimRight(body.String(), "\n")
	return Start + r.seal(text) + text + End, nil
}

// isBegun is true of a conversation that ends with how the answer begins.
func isBegun(messages []api.Message) bool {
	if len(messages) == 0 {
		return false
	}
	last := messages[len(messages)-1]
	return last.Role == "assistant" && last.Content != "" && len(last.ToolCalls) == 0
}

// IsBegun is whether the conversation in an envelope of ours ends with how the answer begins.
func IsBegun(opened string) bool {
	return strings.HasPrefix(opened, Start+`{"begun":true,`)
}

// Open gives the envelope that a prompt is, without its seal; any other prompt is plain text. fits is whether a seal is
// that of a body.
func Open(prompt string, fits func(seal, body string) bool) (string, bool) {
	inner, ok := strings.CutPrefix(prompt, Start)
	if !ok {
		return prompt, false
	}
	inner, closed := strings.CutSuffix(inner, End)
	brace := strings.IndexByte(inner, '{')
	if !closed || brace < 0 || !fits(inner[:brace], inner[brace:]) {
		return prompt, false
	}
	return Start + inner[brace:] + End, true
}
