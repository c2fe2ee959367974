package front

import "testing"

func TestAsks_messages_reachStockAsTheirTemplatesWantThem(t *testing.T) {
	w := newWorld(t)
	result := `{"type":"tool_result","tool_use_id":"1","content":"seen"}`
	text := `{"type":"text","text":"and now?"}`
	image := `{"type":"image_url","image_url":"data:"}`
	for _, row := range []struct{ path, messages, passed string }{
		{"/v1/chat/completions", `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"<b>"}],"name":"n"}]`,
			`[{"role":"user","content":"a\n\n\u003cb\u003e","name":"n"}]`},
		{"/v1/chat/completions", `[{"role":"user","content":[` + text + `,` + image + `]}]`, `[{"role":"user","content":[` + text + `,` + image + `]}]`},
		{"/v1/chat/completions", `[{"role":"user","content":"a"},{"role":"user","content":[]},{"role":"assistant","content":null}]`,
			`[{"role":"user","content":"a"},{"role":"user","content":[]},{"role":"assistant","content":null}]`},
		{"/v1/chat/completions", `[{"role":"user","content":[{"type":"text"}]}]`, `[{"role":"user","content":[{"type":"text"}]}]`}, // stock refuses it
		{"/v1/chat/completions", `[null,"x"]`, `[null,"x"]`},
		{"/v1/chat/completions", `null`, `null`},
		{"/v1/messages", `[{"role":"user","content":[` + text + `,` + result + `]}]`,
			`[{"role":"user","content":[` + result + `]},{"role":"user","content":[` + text + `]}]`},
		{"/v1/messages", `[{"role":"user","content":[` + result + `]},{"role":"user","content":[` + text + `]},{"role":"user","content":"a"}]`,
			`[{"role":"user","content":[` + result + `]},{"role":"user","content":[` + text + `]},{"role":"user","content":"a"}]`},
		{"/v1/messages", `"a"`, `"a"`},
	} {
		passed, _, _ := wished(t, w, row.path, `{`+ours+`,"messages":`+row.messages+`}`)
		if want := `{` + ours + `,"messages":` + row.passed + `}`; passed != want {
			t.Errorf("%s %s: stock got %s", row.path, row.messages, passed)
		}
	}
}
