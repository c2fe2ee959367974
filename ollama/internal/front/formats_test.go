package front

import (
	"testing"
)

const schema = `{"type":"object","properties":{"a":{"type":"object","required":["b"],"additionalProperties":false}}}`

func TestAsks_formats_areTakenAsTheClientWroteThem(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		path, more, passed string
		format             string
		strict             bool
	}{
		{"/api/chat", `,"format":"json"`, ``, `"json"`, false},
		{"/api/generate", `,"format":` + schema, ``, schema, false},
		{"/api/chat", `,"format":""`, `,"format":""`, ``, false},
		{"/api/chat", `,"format":null`, `,"format":null`, ``, false},
		{"/api/chat", `,"format":"yaml"`, `,"format":"yaml"`, ``, false}, // stock refuses it
		{"/v1/chat/completions", `,"response_format":{"type":"json_object"}`, ``, `"json"`, false},
		{"/v1/chat/completions", `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `,"strict":true}}`, ``, schema, true},
		{"/v1/chat/completions", `,"response_format":{"type":"text"}`, `,"response_format":{"type":"text"}`, ``, false},
		{"/v1/responses", `,"text":{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}`, `,"text":{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}`, schema, false},
	} {
		passed, wishes, _ := wished(t, w, row.path, `{`+ours+row.more+`}`)
		if passed != `{`+ours+row.passed+`}` || string(wishes.Format) != row.format || wishes.Strict != row.strict {
			t.Errorf("%s %s: stock got %s, the runner %s %t", row.path, row.more, passed, wishes.Format, wishes.Strict)
		}
	}
}

func TestAsks_tools_areTakenAlongAsTheClientWroteThem(t *testing.T) {
	w := newWorld(t)
	tool := `{"type":"function","function":{"name":"look","parameters":` + schema + `}}`
	flat := `[{"function":{"description":"d","name":"look","parameters":` + schema + `},"type":"function"}]`
	for _, row := range []struct{ path, tools, wished string }{
		{"/api/chat", `[` + tool + `]`, `[` + tool + `]`},
		{"/v1/chat/completions", `[` + tool + `]`, `[` + tool + `]`},
		{"/v1/responses", `[{"type":"function","name":"look","description":"d","parameters":` + schema + `}]`, flat},
		{"/v1/messages", `[{"name":"look","description":"d","input_schema":` + schema + `}]`, flat},
		{"/v1/messages", `[{"type":"web_search_20250305","name":"web_search"}]`, ``},
		{"/api/chat", `[]`, ``},
		{"/api/chat", `"none"`, ``},
	} {
		body := `{` + ours + `,"tools":` + row.tools + `}`
		passed, wishes, _ := wished(t, w, row.path, body)
		if passed != body || string(wishes.Tools) != row.wished {
			t.Errorf("%s %s: stock got %s, the runner %s", row.path, row.tools, passed, wishes.Tools)
		}
	}
}
