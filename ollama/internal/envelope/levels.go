package envelope

import (
	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/harmony"
	"github.com/ollama/ollama/model/parsers"
)

// levelsName is stock's name for the parser of gpt-oss, the only one for which it lets clients ask for levels of thinking.
const levelsName = "harmony"

// A levelsParser reads frames, or what stock's own parser of this name reads: local models of that kind go by the name
// too. Which of the two is known with the beginning of the answer.
type levelsParser struct {
	frames frameParser
	stock  parsers.Parser
	chosen parsers.Parser
}

// Init has stock's parser rename tools as it would. For a session's model the head gets them as the client wrote them.
func (p *levelsParser) Init(tools []api.Tool, last *api.Message, think *api.ThinkValue) []api.Tool {
	p.frames = frameParser{tools: true, thinking: true}
	p.stock = harmony.NewHarmonyMessageHandler()
	return p.stock.Init(tools, last, think)
}

func (p *levelsParser) HasToolSupport() bool { return true }

func (p *levelsParser) HasThinkingSupport() bool { return true }

func (p *levelsParser) Add(s string, done bool) (content, thinking string, calls []api.ToolCall, err error) {
	if p.chosen == nil && s != "" {
		p.chosen = p.stock
		if s[0] == frameStart {
			p.chosen = &p.frames
		}
	}
	if p.chosen == nil {
		return "", "", nil, nil
	}
	return p.chosen.Add(s, done)
}
