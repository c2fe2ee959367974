package front

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/seal"
)

const ours = `"model":"kafila/session/model:7"`

// wished is what the front of a world leaves on the course of a request, and what stock then gets.
func wished(t *testing.T, w *world, path, body string) (got string, wishes envelope.Wishes, answer *httptest.ResponseRecorder) {
	t.Helper()
	before := &Front{Models: w.models, Key: w.key, Stock: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(courseKey{}).(*course); ok && c.wishes != nil {
			wishes = *c.wishes
		}
		read, err := io.ReadAll(r.Body)
		if err != nil || int64(len(read)) != r.ContentLength {
			t.Errorf("%d of %d bytes: %v", len(read), r.ContentLength, err)
		}
		got = string(read)
	})}
	answer = httptest.NewRecorder()
	before.ServeHTTP(answer, httptest.NewRequest("POST", path, strings.NewReader(body)))
	return got, wishes, answer
}

func TestAsks_whatWouldMakeStockReload_isTakenOutAndTheRestStays(t *testing.T) {
	w := newWorld(t)
	three := uint32(3)
	for _, row := range []struct {
		path, body, passed string
		wishes             envelope.Wishes
	}{
		{"/api/chat", `{` + ours + `,"options":{"num_ctx":512,"temperature":0.5},"keep_alive":"5m","messages":[{"a":1}]}`,
			`{` + ours + `,"options":{"temperature":0.5},"messages":[{"a":1}]}`, envelope.Wishes{NumCtx: 512}},
		{"/api/chat", `{` + ours + `,"options":{"num_batch":1,"num_gpu":0,"main_gpu":1,"num_thread":4,"use_mmap":false,"use_imagegen_runner":true}}`,
			`{` + ours + `,"options":{}}`, envelope.Wishes{}},
		{"/api/chat", `{` + ours + `,"OPTIONS":{"num_ctx":1},"Keep_Alive":-1,"options":{"num_ctx":null,"seed":7}}`,
			`{` + ours + `,"OPTIONS":{},"options":{"seed":7}}`, envelope.Wishes{NumCtx: 4}},
		{"/api/chat", `{` + ours + `,"options":{"num_ctx":"many","use_mmap":1},"keep_alive":"soon"}`, // stock refuses them itself
			`{` + ours + `,"options":{"num_ctx":"many","use_mmap":1},"keep_alive":"soon"}`, envelope.Wishes{}},
		{"/api/chat", `{` + ours + `,"options":{"guesses":false,"seed":7}}`, `{` + ours + `,"options":{"seed":7}}`, envelope.Wishes{Guesses: new(uint32)}},
		{"/api/chat", `{` + ours + `,"options":{"guesses":true}}`, `{` + ours + `,"options":{}}`, envelope.Wishes{}},
		{"/api/chat", `{` + ours + `,"options":{"guesses":3}}`, `{` + ours + `,"options":{}}`, envelope.Wishes{Guesses: &three}},
		{"/api/chat", `{` + ours + `,"options":{"guesses":-1}}`, `{` + ours + `,"options":{"guesses":-1}}`, envelope.Wishes{}},
		{"/api/chat", `{` + ours + `,"options":null,"keep_alive":null}`, `{` + ours + `,"options":null}`, envelope.Wishes{}},
		{"/api/embed", `{` + ours + `,"keep_alive":0,"options":{"num_ctx":64}}`, `{` + ours + `,"options":{}}`, envelope.Wishes{NumCtx: 64}},
		{"/api/embed", `{` + ours + `,"truncate":false}`, `{` + ours + `,"truncate":false}`, envelope.Wishes{Whole: true}},
		{"/api/embed", `{` + ours + `,"truncate":true}`, `{` + ours + `,"truncate":true}`, envelope.Wishes{}},
		{"/api/generate", `{` + ours + `,"prompt":"a","keep_alive":0,"context":[1,2]}`, `{` + ours + `,"prompt":"a"}`,
			envelope.Wishes{Context: []int32{1, 2}, TellsContext: true}},
		{"/api/generate", `{` + ours + `,"prompt":"a","raw":true,"context":[1]}`, `{` + ours + `,"prompt":"a","raw":true,"context":[1]}`, envelope.Wishes{}},
		{"/api/generate", `{` + ours + `,"prompt":"a","context":"x"}`, `{` + ours + `,"prompt":"a","context":"x"}`, envelope.Wishes{}},
		{"/api/generate", `{` + ours + `,"prompt":"a","suffix":"b"}`, `{` + ours + `,"prompt":"a","suffix":"b"}`, envelope.Wishes{TellsContext: true}},
		{"/v1/completions", `{` + ours + `,"prompt":"a","suffix":"b"}`, `{` + ours + `,"prompt":"a","suffix":"b"}`, envelope.Wishes{}},
		{"/v1/chat/completions", `{` + ours + `,"messages":[]}`, `{` + ours + `,"messages":[]}`, envelope.Wishes{}},
		{"/api/chat", `{"model":"llama3","options":{"num_ctx":8},"keep_alive":0}  `, `{"model":"llama3","options":{"num_ctx":8},"keep_alive":0}  `, envelope.Wishes{}},
		{"/api/chat", `{"model":7,"options":{"num_ctx":8}}`, `{"model":7,"options":{"num_ctx":8}}`, envelope.Wishes{}},
		{"/api/chat", `[]`, `[]`, envelope.Wishes{}},
		{"/api/chat", `{` + ours, `{` + ours, envelope.Wishes{}},
	} {
		passed, wishes, _ := wished(t, w, row.path, row.body)
		if passed != row.passed || !reflect.DeepEqual(wishes, row.wishes) {
			t.Errorf("%s %s: stock got %s, the runner %+v", row.path, row.body, passed, wishes)
		}
	}
}

func TestAsks_whenTheModelFillsIn_takesTheSuffix(t *testing.T) {
	w := newWorld(t)
	session := fake.ReadySession()
	session.Vehicle.Insert = true
	w.models.Register(session)
	for _, row := range []struct{ path, more, passed, suffix string }{
		{"/api/generate", `,"suffix":"b"`, ``, "b"},
		{"/v1/completions", `,"suffix":"b"`, ``, "b"},
		{"/api/generate", `,"suffix":"b","raw":true`, `,"raw":true`, ""},
		{"/api/generate", `,"suffix":"b","template":"{{.Prompt}}"`, `,"suffix":"b","template":"{{.Prompt}}"`, ""},
	} {
		passed, wishes, _ := wished(t, w, row.path, `{`+ours+`,"prompt":"a"`+row.more+`}`)
		if passed != `{`+ours+`,"prompt":"a"`+row.passed+`}` || wishes.Suffix != row.suffix {
			t.Errorf("%s %s: stock got %s, the runner %q", row.path, row.more, passed, wishes.Suffix)
		}
	}
}

func TestAsks_whatASessionsModelCannot_isRefusedInTheWordsOfItsAPI(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct{ path, body, words string }{
		{"/api/generate", `{` + ours + `,"keep_alive":0}`, `{"error":"` + fake.ModelName + ` is the model of a session`},
		{"/api/chat", `{` + ours + `,"keep_alive":"0s","messages":[]}`, "ollama session leave"},
		{"/api/generate", `{` + ours + `,"prompt":"a","context":[-1]}`, "no token of this model"},
		{"/api/chat", `{` + ours + `,"_debug_render_only":true}`, "rendered by its head"},
		{"/v1/chat/completions", `{` + ours + `,"_debug_render_only":true}`, `{"error":{"message":"the prompts`},
		{"/v1/messages", `{` + ours + `,"_debug_render_only":true}`, `{"type":"error","error":{"type":"invalid_request_error"`},
		{"/v1/images/generations", `{` + ours + `,"prompt":"a cat"}`, `{"error":{"message":"` + fake.ModelName + ` makes no pictures`},
		{"/v1/images/edits", `{` + ours + `,"prompt":"a cat","image":"x"}`, "makes no pictures"},
	} {
		passed, _, answer := wished(t, w, row.path, row.body)
		if passed != "" || answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), row.words) {
			t.Errorf("%s %s: %d %s, stock got %q", row.path, row.body, answer.Code, answer.Body, passed)
		}
	}
}

// What the store itself asks, such as to load and unload, is not touched.
func TestAsks_whenTheServersOwnStoreAsks_takesNothing(t *testing.T) {
	w := newWorld(t)
	w.ask("POST", "/api/generate", `{`+ours+`,"keep_alive":0}`, seal.Header, w.key.Of(seal.Store))
	if w.passed != `POST /api/generate {`+ours+`,"keep_alive":0}` {
		t.Errorf("stock got %q", w.passed)
	}
}

func TestAsks_whenMoreContextIsAskedForThanThereIs_saysItOnce(t *testing.T) {
	w := newWorld(t)
	has := int(fake.ReadySession().Vehicle.ContextLength)
	for _, tokens := range []int{has, has + 1, 8 * has, has + 2} {
		body, _ := json.Marshal(map[string]any{"model": fake.ModelName, "options": map[string]int{"num_ctx": tokens}})
		wished(t, w, "/api/chat", string(body))
	}
	said := w.models.Limited("s1")
	if len(said) != 1 || !strings.Contains(said[0], "num_ctx") {
		t.Errorf("%q", said)
	}
}

// The whole way there and back: what is wished reaches the runner, and its ids the client, beside what stock sends.
func TestListening_takesWishesToTheRunnerAndItsIDsBack(t *testing.T) {
	var completion struct {
		Prompt string
		Kafila envelope.Wishes
	}
	ids := make([]uint32, 70_000)
	for i := range ids {
		ids[i] = uint32(i)
	}
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&completion); err != nil {
			t.Error(err)
		}
		w.Header().Set(envelope.SessionHeader, "1")
		if _, err := w.Write(append(envelope.ContextLines(ids), `{"content":"","done":true}`+"\n"...)); err != nil {
			t.Error(err)
		}
	}))
	defer runner.Close()
	ctx, c := withCourse(t.Context())
	c.wishes = &envelope.Wishes{NumCtx: 9, Context: []int32{1}, Suffix: "\"}", TellsContext: true}
	request, err := http.NewRequestWithContext(ctx, "POST", runner.URL+"/completion", strings.NewReader(`{"Prompt":"hello"}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&listening{next: http.DefaultTransport}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	if completion.Prompt != "hello" || !reflect.DeepEqual(completion.Kafila, *c.wishes) {
		t.Errorf("the runner got %+v", completion)
	}
	if !reflect.DeepEqual(c.ids(), ids) {
		t.Errorf("%d ids came back", len(c.ids()))
	}
}

func TestWithContext_putsIDsWhereStockHasItsOwn_andNowhereElse(t *testing.T) {
	ids := []uint32{5, 6}
	for line, want := range map[string]string{
		`{"response":"","done":true,"context":[2],"total_duration":1}`:  `{"response":"","done":true,"context":[5,6],"total_duration":1}`,
		`{"response":",\"context\":[1]","done":false}`:                  `{"response":",\"context\":[1]","done":false}`,
		`{"response":",\"context\":[1]","done":true,"context":[2,2,2]}`: `{"response":",\"context\":[1]","done":true,"context":[5,6]}`,
		`{"error":"no"}`: `{"error":"no"}`,
	} {
		if got := string(withContext([]byte(line), ids)); got != want {
			t.Errorf("%s became %s", line, got)
		}
		if got := string(withContext([]byte(line), nil)); got != line {
			t.Errorf("without ids %s became %s", line, got)
		}
	}
}

func TestObject_whateverItHolds_comesBackAsItWas(t *testing.T) {
	for _, text := range []string{`{}`, `{"a":1,"a":2,"A":[1.50,"\u00e9"]}`, `{"":null,"é\n":{"b":{}}}`} {
		var o object
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if back, err := o.MarshalJSON(); err != nil || string(back) != text {
			t.Errorf("%s came back as %s, %v", text, back, err)
		}
	}
}
