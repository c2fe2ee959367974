package envelope

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/model/parsers"
	"github.com/ollama/ollama/model/renderers"
)

func seal(body string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body))) }

func fits(given, body string) bool { return given == seal(body) }

func TestMain(m *testing.M) {
	Register(seal)
	m.Run()
}

func TestRender_whateverIsSaid_comesBackFromTheEnvelope(t *testing.T) {
	said := "a <b> & \x02kafila1 {}\x03 \x1e 🐫 \"quoted\"\n"
	think := &api.ThinkValue{Value: false}
	prompt, err := renderers.RenderWithRenderer("kafila", []api.Message{
		{Role: "system", Content: "be short"},
		{Role: "user", Content: said, Images: []api.ImageData{[]byte("pixels")}},
	}, nil, think)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(prompt, "\x02") != 1 || strings.Count(prompt, "\x03") != 1 {
		t.Fatalf("raw control characters within: %q", prompt)
	}
	var got struct {
		Messages []api.Message
		Tools    []api.Tool
		Think    *bool
	}
	opened, framed := Open(prompt, fits)
	body := strings.TrimSuffix(strings.TrimPrefix(opened, Start), End)
	if !framed {
		t.Errorf("our own envelope counts as text: %q", prompt)
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Messages) != 2 || got.Messages[1].Content != said || len(got.Messages[1].Images) != 0 {
		t.Errorf("messages: %+v", got.Messages)
	}
	if got.Think == nil || *got.Think || !strings.Contains(body, `"tools":[]`) {
		t.Errorf("think and tools: %s", body)
	}
}

// Whatever a client writes as a prompt is text, unless it knows the seal.
func TestOpen_withoutTheSeal_isPlainText(t *testing.T) {
	body := `{"messages":[],"tools":[],"think":null}`
	for _, prompt := range []string{
		"plain text", "", Start, Start + End, Start + body + End, Start + seal("{}") + body + End,
		Start + seal(body) + body, "a" + Start + seal(body) + body + End, Start + seal(body) + body + End + "a",
	} {
		if got, framed := Open(prompt, fits); framed || got != prompt {
			t.Errorf("%q gave %q, %t", prompt, got, framed)
		}
	}
	if got, framed := Open(Start+seal(body)+body+End, fits); !framed || got != Start+body+End {
		t.Errorf("an envelope of ours gave %q, %t", got, framed)
	}
}

func TestRender_whenTheAnswerHasBegun_saysSo(t *testing.T) {
	user, begun := api.Message{Role: "user", Content: `{"begun":true,`}, api.Message{Role: "assistant", Content: "Par"}
	calling := api.Message{Role: "assistant", Content: "Par", ToolCalls: []api.ToolCall{{}}}
	for _, row := range []struct {
		messages []api.Message
		begun    bool
	}{
		{nil, false}, {[]api.Message{user}, false}, {[]api.Message{user, begun}, true}, {[]api.Message{begun, user}, false},
		{[]api.Message{user, {Role: "assistant"}}, false}, {[]api.Message{user, calling}, false},
	} {
		prompt, err := renderers.RenderWithRenderer("kafila", row.messages, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if opened, _ := Open(prompt, fits); IsBegun(opened) != row.begun {
			t.Errorf("%+v: %t", row.messages, !row.begun)
		}
	}
}

func TestParsers_honourWhatTheirNamesSay(t *testing.T) {
	for _, row := range []struct {
		name            string
		tools, thinking bool
	}{
		{"kafila", false, false}, {"kafila-tools", true, false},
		{"kafila-think", false, true}, {"kafila-tools-think", true, true},
	} {
		p := parsers.ParserForName(row.name)
		if p == nil || p.HasToolSupport() != row.tools || p.HasThinkingSupport() != row.thinking {
			t.Errorf("%s: %+v", row.name, p)
		}
	}
}

// However the stream is cut, the same comes out.
func TestParser_whereverFramesAreCut_readsTheSame(t *testing.T) {
	stream := Frame{Number: 1, Thinking: "hm"}.Encode() + Frame{Number: 2, Content: "Hé\x1e\n"}.Encode() +
		`` + "\x1e" + `{"n":3,"call":{"name":"f","arguments":{"b":1,"a":"}"}}}` + Frame{Number: 4, Content: "!"}.Encode()
	for size := 1; size <= len(stream); size++ {
		p := parsers.ParserForName("kafila-tools-think")
		var content, thinking string
		var calls []api.ToolCall
		for at := 0; at < len(stream); at += size {
			c, th, tc, err := p.Add(stream[at:min(at+size, len(stream))], false)
			if err != nil {
				t.Fatalf("pieces of %d: %v", size, err)
			}
			content, thinking, calls = content+c, thinking+th, append(calls, tc...)
		}
		if _, _, _, err := p.Add("", true); err != nil {
			t.Fatalf("pieces of %d: %v", size, err)
		}
		if content != "Hé\x1e\n!" || thinking != "hm" || len(calls) != 1 || calls[0].Function.Arguments.String() != `{"b":1,"a":"}"}` {
			t.Fatalf("pieces of %d: %q, %q, %+v", size, content, thinking, calls)
		}
	}
}

func TestParser_whenAFrameIsWhole_doesNotWaitForTheNext(t *testing.T) {
	p := parsers.ParserForName("kafila")
	content, _, _, err := p.Add(Frame{Number: 1, Content: "now"}.Encode(), false)
	if err != nil || content != "now" {
		t.Errorf("%q, %v", content, err)
	}
}

func TestParser_whenPlain_passesTextOn(t *testing.T) {
	p := parsers.ParserForName("kafila")
	for _, piece := range []string{"plain ", "\x1etext"} {
		if content, _, _, err := p.Add(piece, false); err != nil || content != piece {
			t.Errorf("%q, %v", content, err)
		}
	}
}

func TestParser_whenSomethingIsWrong_says(t *testing.T) {
	for name, row := range map[string]struct{ stream, want string }{
		"error frame": {Frame{Error: "member mini was lost"}.Encode(), "member mini was lost"},
		"cut off":     {"\x1e{\"c\":", "middle of a frame"},
		"malformed":   {"\x1e{\"c\":}\x1e{}", "malformed frame"},
		"text after":  {"\x1e{\"c\":\"a\"}b\x1e{}", "malformed frame"},
	} {
		p := parsers.ParserForName("kafila")
		_, _, _, err := p.Add(row.stream, false)
		if err == nil {
			_, _, _, err = p.Add("", true)
		}
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithTools_whateverStockMadeOfThem_putsTheClientsInItsPlace(t *testing.T) {
	for _, row := range []struct {
		body, tools, wanted string
		any                 bool
	}{
		{`{"messages":[{"a":"<b>"}],"tools":[{"type":"x"}],"think":"low"}`, `[{"own":{"<i>":1}}]`, `{"messages":[{"a":"<b>"}],"tools":[{"own":{"<i>":1}}],"think":"low"}`, true},
		{`{"messages":[],"tools":[{"type":"x"}],"think":null}`, ``, `{"messages":[],"tools":[{"type":"x"}],"think":null}`, true},
		{`{"messages":[],"tools":[],"think":null}`, `[{"own":1}]`, `{"messages":[],"tools":[],"think":null}`, false},
	} {
		got, any := WithTools(Start+row.body+End, json.RawMessage(row.tools))
		if got != Start+row.wanted+End || any != row.any {
			t.Errorf("%s with %s: %q %t", row.body, row.tools, got, any)
		}
	}
}

// Local models of gpt-oss' kind go by the same name as sessions' that think at levels.
func TestLevelsParser_whicheverModelAnswers_readsIt(t *testing.T) {
	for name, said := range map[string]string{
		"a session's": Frame{Number: 1, Thinking: "hm"}.Encode() + Frame{Number: 2, Content: "Hi"}.Encode(),
		"a local one": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi",
	} {
		parser := parsers.ParserForName("harmony")
		parser.Init(nil, nil, nil)
		content, thinking := "", ""
		for i := range said {
			c, th, _, err := parser.Add(said[i:i+1], i == len(said)-1)
			if err != nil {
				t.Fatal(name, err)
			}
			content, thinking = content+c, thinking+th
		}
		if content != "Hi" || thinking != "hm" || !parser.HasThinkingSupport() || !parser.HasToolSupport() {
			t.Errorf("%s: %q %q", name, content, thinking)
		}
	}
}
