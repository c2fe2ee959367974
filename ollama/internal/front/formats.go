package front

import (
	"bytes"
	"encoding/json"
	"strings"
)

// takeFormat has a schema reach the head as the client wrote it, and stock ask once: for a model that thinks it would ask
// twice, the second time with the thought in place of a conversation's end. What stock would refuse stays.
func (a *asking) takeFormat() string {
	var format json.RawMessage
	if a.request.read("format", &format) != nil || !isFormat(format) {
		return ""
	}
	a.wishes.Format = format
	a.request = a.request.without("format")
	return ""
}

// A responseFormat is OpenAI's, in both of its APIs.
type responseFormat struct {
	Type       string
	JSONSchema *struct {
		Schema json.RawMessage
		Strict bool
	} `json:"json_schema"`
	Schema json.RawMessage
	Strict bool
}

func (a *asking) takeResponseFormat() string {
	var format responseFormat
	if a.request.read("response_format", &format) != nil || !a.takes(format) {
		return ""
	}
	a.request = a.request.without("response_format")
	return ""
}

// takeTextFormat leaves the format in the request where that does no harm, since stock repeats it in its answer.
func (a *asking) takeTextFormat() string {
	var text struct{ Format responseFormat }
	if a.request.read("text", &text) == nil && a.takes(text.Format) && a.thinks() {
		a.request = a.request.without("text")
	}
	return ""
}

// takes reads a format, and is false where there is none.
func (a *asking) takes(format responseFormat) bool {
	switch strings.ToLower(strings.TrimSpace(format.Type)) {
	case "json_object":
		format.Schema, format.Strict = json.RawMessage(`"json"`), false
	case "json_schema":
		if format.JSONSchema != nil {
			format.Schema, format.Strict = format.JSONSchema.Schema, format.JSONSchema.Strict
		}
	}
	if !isFormat(format.Schema) {
		return false
	}
	a.wishes.Format, a.wishes.Strict = format.Schema, format.Strict
	return true
}

func (a *asking) thinks() bool {
	parser := a.session.Vehicle.Parser
	return strings.HasSuffix(parser, "-think") || parser == "harmony"
}

// isFormat is true of what stock takes for one.
func isFormat(value json.RawMessage) bool {
	return bytes.Equal(value, []byte(`"json"`)) || bytes.HasPrefix(value, []byte("{"))
}

// takeTools has the definitions of tools reach the template as the client wrote them: stock's own types lose much of a
// schema. Stock gets them too.
func (a *asking) takeTools() string {
	var tools []json.RawMessage
	if a.request.read("tools", &tools) == nil {
		a.wishTools(tools)
	}
	return ""
}

// takeFlatTools are those of the APIs in which a tool's fields stand in the tool itself. Tools of other kinds are for
// stock to judge.
func (a *asking) takeFlatTools() string {
	var tools []struct {
		Type, Name, Description string
		Parameters              json.RawMessage
		InputSchema             json.RawMessage `json:"input_schema"`
	}
	if a.request.read("tools", &tools) != nil {
		return ""
	}
	var made []json.RawMessage
	for _, tool := range tools {
		schema := tool.Parameters
		if schema == nil {
			schema = tool.InputSchema
		}
		isOwn := tool.Type == "" || tool.Type == "function" || tool.Type == "custom"
		if !isOwn || schema == nil {
			return ""
		}
		function := map[string]any{"name": tool.Name, "description": tool.Description, "parameters": schema}
		one, err := json.Marshal(map[string]any{"type": "function", "function": function})
		if err != nil {
			return ""
		}
		made = append(made, one)
	}
	a.wishTools(made)
	return ""
}

func (a *asking) wishTools(tools []json.RawMessage) {
	if len(tools) == 0 {
		return
	}
	if all, err := json.Marshal(tools); err == nil {
		a.wishes.Tools = all
	}
}
