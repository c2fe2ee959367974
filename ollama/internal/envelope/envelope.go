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
// "\x02kafila1 {…}\x03". JSON never holds a raw control character, so both ends can be found in any text.
const (
	Start = "\x02kafila1 "
	End   = "\x03"
)

// RendererName is what a stub model names as its renderer.
const RendererName = "kafila"

// Register makes renderer and parsers known to the stock server in this process. The parsers differ in what `show` and
// the stock handlers may expect of the model, not in how they read frames.
func Register() {
	renderers.Register(RendererName, func() renderers.Renderer { return renderer{} })
	for name, parser := range map[string]frameParser{
		"kafila":             {},
		"kafila-tools":       {tools: true},
		"kafila-think":       {thinking: true},
		"kafila-tools-think": {tools: true, thinking: true},
	} {
		parsers.Register(name, func() parsers.Parser { return &frameParser{tools: parser.tools, thinking: parser.thinking} })
	}
}

type renderer struct{}

// Render packs the messages as they are. Images are left out: how many came is told to the sidecar beside the prompt.
func (renderer) Render(messages []api.Message, tools []api.Tool, think *api.ThinkValue) (string, error) {
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
	return Start + strings.TrimRight(body.String(), "\n") + End, nil
}

// In returns the envelope within a prompt. Stock puts the deprecated `context` of a generate request before
// it; the null vocabulary can't say what was in there, so that is dropped.
func In(prompt string) (string, bool) {
	start := strings.Index(prompt, Start)
	if start < 0 {
		return prompt, false
	}
	envelope := prompt[start:]
	if end := strings.Index(envelope, End); end >= 0 {
		envelope = envelope[:end+len(End)]
	}
	return envelope, true
}
