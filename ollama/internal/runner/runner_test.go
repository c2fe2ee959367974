package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/llm"
	"github.com/ollama/ollama/ml"
	"github.com/ollama/ollama/model/parsers"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/internal/stub"
	"kafila/ollama/pb"
)

// The test binary is also the runner that the scheduler starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		returnPatience = 2 * time.Second
		if err := Run(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

// key is what the server of these tests seals with.
var key = seal.New()

// sealed is a prompt as our renderer makes it.
func sealed(body string) string {
	return envelope.Start + key.Of(seal.Chat, body) + body + envelope.End
}

func stubFile(t *testing.T, by seal.Key) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stub.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := stub.Write(file, fake.ReadySession(), by, ""); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

// loadStub has upstream's own scheduler code start this test binary as the runner of a stub model.
func loadStub(t *testing.T, s *fake.Sidecar) (llm.LlamaServer, func()) {
	t.Helper()
	server, kill := startStub(t, s, stubFile(t, key))
	if _, err := server.Load(t.Context(), ml.SystemInfo{}, nil, false); err != nil {
		t.Fatal(err)
	}
	return server, kill
}

// startStub has a runner started for a model file, and loads nothing yet.
func startStub(t *testing.T, s *fake.Sidecar, path string) (llm.LlamaServer, func()) {
	t.Helper()
	socket, kill := fake.Start(t, s)
	t.Setenv(env.Socket, socket)
	t.Setenv(env.ServerPID, fmt.Sprint(os.Getpid()))
	t.Setenv(env.Seal, key.Encode())
	http.DefaultClient.Transport = &seal.Transport{Seal: key.ToRunner}
	t.Cleanup(func() { http.DefaultClient.Transport = nil })
	file, err := llm.LoadModel(path, 1024)
	if err != nil {
		t.Fatal(err)
	}
	options := api.DefaultOptions()
	options.NumCtx = 4096
	server, err := llm.NewLlamaServer(ml.SystemInfo{}, nil, path, file, nil, nil, options, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server, kill
}

// complete asks upstream's client for one completion and gives its chunks and its last line.
func complete(ctx context.Context, server llm.LlamaServer, prompt string, each func(string)) (chunks []string, last llm.CompletionResponse, err error) {
	options := api.DefaultOptions()
	options.Seed, options.Stop, options.Temperature = 42, []string{"END"}, 0
	request := llm.CompletionRequest{Prompt: prompt, Options: &options, Truncate: true, Format: json.RawMessage(`"json"`)}
	err = server.Completion(ctx, request, func(r llm.CompletionResponse) {
		if r.Done {
			last = r
			return
		}
		chunks = append(chunks, r.Content)
		if each != nil {
			each(r.Content)
		}
	})
	return chunks, last, err
}

func TestRunner_whenAnswered_passesEverythingOn(t *testing.T) {
	s := &fake.Sidecar{Replies: []string{"Par", "is", "", "."}}
	server, _ := loadStub(t, s)
	chunks, last, err := complete(t.Context(), server, "hello", nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(chunks, "") != "Paris." {
		t.Errorf("chunks: %q", chunks)
	}
	if !last.Done || last.Content != "" || last.DoneReason != llm.DoneReasonLength || last.PromptEvalCount != 7 ||
		last.EvalCount != 3 || last.EvalDuration != 1500*time.Millisecond {
		t.Errorf("last line: %+v", last)
	}
	asked := s.Asked()
	if asked.Session != "s1" || asked.Prompt != "hello" || asked.Format != "json" || !asked.Truncate ||
		asked.Options.GetSeed() != 42 || asked.Options.GetTemperature() != 0 || asked.Options.Stop[0] != "END" {
		t.Errorf("asked: %v", asked)
	}
}

func TestRunner_whenChunksRepeat_isNotCutOff(t *testing.T) {
	for name, chunk := range map[string]string{"words": "ha ", "blank lines": "\n"} {
		t.Run(name, func(t *testing.T) {
			said := append(strings.Split(strings.Repeat(chunk+"|", 100), "|"), "end")
			server, _ := loadStub(t, &fake.Sidecar{Replies: said})
			chunks, last, err := complete(t.Context(), server, "hello", nil)
			if err != nil || !last.Done || strings.Join(chunks, "") != strings.Repeat(chunk, 100)+"end" {
				t.Errorf("%v, done %t, %d bytes", err, last.Done, len(strings.Join(chunks, "")))
			}
		})
	}
}

func TestRunner_whenToldHowFarItIs_isNotCutOff(t *testing.T) {
	headway := slices.Repeat([]*pb.Headway{{Doing: "reading", Tokens: 1, Of: 2}}, 100)
	server, _ := loadStub(t, &fake.Sidecar{Headway: headway, Replies: []string{"Par", "is"}})
	chunks, last, err := complete(t.Context(), server, "hello", nil)
	if err != nil || !last.Done || strings.Join(chunks, "") != "Paris" {
		t.Errorf("%v, done %t, %q", err, last.Done, chunks)
	}
}

func TestRunner_whenAChunkIsHuge_cutsItBetweenCharacters(t *testing.T) {
	huge := strings.Repeat("\x1e🐫\x01", 200_000) // every byte of it grows in JSON
	server, _ := loadStub(t, &fake.Sidecar{Replies: []string{huge}})
	chunks, last, err := complete(t.Context(), server, "hello", nil)
	if err != nil || !last.Done || strings.Join(chunks, "") != huge {
		t.Errorf("%v, done %t, %d bytes of %d", err, last.Done, len(strings.Join(chunks, "")), len(huge))
	}
}

func TestRunner_whenRefused_keepsStatusAndSentence(t *testing.T) {
	sentence := "the input length exceeds the context length"
	server, _ := loadStub(t, &fake.Sidecar{Fails: status.Error(codes.InvalidArgument, sentence)})
	_, _, err := complete(t.Context(), server, "hello", nil)
	failed, ok := err.(api.StatusError)
	if !ok || failed.StatusCode != 400 || failed.ErrorMessage != sentence {
		t.Errorf("%#v", err)
	}
}

// The sidecar is not even asked, and the runner goes on with its other answers.
func TestRunner_whenARequestIsTooLarge_refusesInWordsAndLivesOn(t *testing.T) {
	s := &fake.Sidecar{Replies: []string{"Par"}}
	server, _ := loadStub(t, s)
	long := strings.Repeat("x", requestLimitBytes)
	many := make([]string, 3_000_000)
	for name, request := range map[string]llm.CompletionRequest{
		"prompt":   {Prompt: long},
		"escaped":  {Prompt: strings.Repeat("\x01", bodyLimitBytes/6+1)},
		"stops":    {Prompt: "x", Options: &api.Options{Stop: append(many, strings.Repeat("y", requestLimitBytes-2*len(many)))}},
		"envelope": {Prompt: sealed(long)},
	} {
		if request.Options == nil {
			request.Options = &api.Options{}
		}
		err := server.Completion(t.Context(), request, func(llm.CompletionResponse) {})
		failed, ok := err.(api.StatusError)
		if !ok || failed.StatusCode != 400 || !strings.Contains(failed.ErrorMessage, "shorten it") || s.Asked() != nil {
			t.Errorf("%s: %v", name, err)
		}
		if server.HasExited() || server.Ping(t.Context()) != nil {
			t.Fatalf("%s: the runner was killed", name)
		}
	}
	if _, last, err := complete(t.Context(), server, "hello", nil); err != nil || !last.Done {
		t.Errorf("afterwards: %v", err)
	}
}

// Whatever the sentence looks like, the client gets it, and the runner goes on with its other answers.
func TestRunner_whenItFailsInMidAnswer_saysWhyAndLivesOn(t *testing.T) {
	for name, sentence := range map[string]string{
		"plain": "member mini was lost", "colon": "mini: lost, ask again: now", "lines": "mini was\r\n\r\nlost", "quotes": `"mini" was lost`,
	} {
		t.Run(name, func(t *testing.T) {
			s := &fake.Sidecar{Replies: []string{"Par"}, Fails: status.Error(codes.Unavailable, sentence)}
			server, _ := loadStub(t, s)
			chunks, last, err := complete(t.Context(), server, "no envelope", nil)
			if err == nil || last.Done || !strings.Contains(err.Error(), "mini") || strings.Join(chunks, "") != "Par" {
				t.Errorf("%v, done %t, %q", err, last.Done, chunks)
			}
			if server.HasExited() || server.Ping(t.Context()) != nil {
				t.Error("the runner was killed")
			}
		})
	}
}

func TestRunner_whenItFailsInMidAnswer_tellsItsServerBeforeItBreaksOff(t *testing.T) {
	socket, _ := fake.Start(t, &fake.Sidecar{Replies: []string{"Par"}, Fails: status.Error(codes.Unavailable, "mini: lost")})
	conn, err := sidecar.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	runner := httptest.NewServer(newProxy("s1", pb.NewSidecarClient(conn), key))
	defer runner.Close()
	answer, err := http.Post(runner.URL+"/completion", "application/json", strings.NewReader(`{"prompt":"no envelope"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	failure, told := envelope.FailureIn([]byte(lines[len(lines)-1]))
	if err == nil || !told || failure.Sentence != "mini: lost" || failure.Status != http.StatusServiceUnavailable {
		t.Errorf("%v, %q", err, body)
	}
}

func TestRunner_whenAFramedAnswerFails_endsWithAnErrorFrame(t *testing.T) {
	first := envelope.Frame{Number: 1, Content: "Par"}.Encode()
	server, _ := loadStub(t, &fake.Sidecar{Replies: []string{first}, Fails: status.Error(codes.Unavailable, "mini: lost")})
	chunks, last, err := complete(t.Context(), server, sealed("{}"), nil)
	if err != nil || last.Done || len(chunks) != 2 {
		t.Fatalf("%v, done %t, %q", err, last.Done, chunks)
	}
	envelope.Register(func(body string) string { return key.Of(seal.Chat, body) })
	p := parsers.ParserForName("kafila")
	if _, _, _, err := p.Add(chunks[0], false); err != nil {
		t.Error(err)
	}
	if _, _, _, err := p.Add(chunks[1], false); err == nil || err.Error() != "mini: lost" {
		t.Errorf("the last frame gave %v", err)
	}
}

func TestRunner_whenTheClientLeaves_cancelsTheSequence(t *testing.T) {
	s := &fake.Sidecar{Replies: []string{"one"}, Hangs: true, Cancelled: make(chan struct{})}
	server, _ := loadStub(t, s)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	_, _, err := complete(ctx, server, "hello", func(string) { leave() })
	if err == nil {
		t.Error("a cancelled completion looked like success")
	}
	select {
	case <-s.Cancelled:
	case <-time.After(time.Second):
		t.Error("the sequence went on after its client had left")
	}
}

func TestRunner_whenTheSidecarDies_saysSo(t *testing.T) {
	s := &fake.Sidecar{Replies: []string{envelope.Frame{Number: 1, Content: "one"}.Encode()}, Hangs: true, Cancelled: make(chan struct{})}
	server, kill := loadStub(t, s)
	chunks, _, err := complete(t.Context(), server, sealed("{}"), func(text string) {
		if !strings.Contains(text, "error") {
			kill()
		}
	})
	if err != nil || len(chunks) != 2 || !strings.Contains(chunks[1], "not running") {
		t.Errorf("in the middle: %v, %q", err, chunks)
	}
	_, _, err = complete(t.Context(), server, "hello", nil)
	if failed, ok := err.(api.StatusError); !ok || failed.StatusCode != 503 || failed.ErrorMessage != sidecar.Gone {
		t.Errorf("afterwards: %#v", err)
	}
}

func TestRunner_whenTheModelIsNotThisServers_refusesInWordsAndAsksNobody(t *testing.T) {
	for name, path := range map[string]string{
		"another server's": stubFile(t, seal.New()),
		"nobody's":         stubFile(t, nil),
	} {
		s := &fake.Sidecar{Replies: []string{"captured"}}
		server, _ := startStub(t, s, path)
		if _, err := server.Load(t.Context(), ml.SystemInfo{}, nil, false); err == nil || !strings.Contains(err.Error(), Foreign) {
			t.Errorf("%s: loading gave %v", name, err)
		}
		chunks, _, err := complete(t.Context(), server, "a private question", nil)
		if err == nil || len(chunks) != 0 || s.Asked() != nil {
			t.Errorf("%s: %v, %q, the sidecar was asked %v", name, err, chunks, s.Asked())
		}
	}
}

func TestRunner_whenSomebodyElseAsks_refuses(t *testing.T) {
	asked := false
	const port = "4711"
	guarded := fromServerOnly(key, port, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	const json = "application/json"
	fits := key.Of(seal.Runner, port)
	for name, row := range map[string]struct {
		seal, method, path, host, kind, origin string
		want                                   bool
	}{
		"the server":                  {fits, "POST", "/completion", "127.0.0.1:4711", json, "", true},
		"the server's look":           {fits, "GET", "/health", "127.0.0.1:4711", json, "", true},
		"another user":                {"", "POST", "/completion", "127.0.0.1:4711", json, "", false},
		"another user's look":         {"", "GET", "/health", "127.0.0.1:4711", json, "", false},
		"the seal of another port":    {key.Of(seal.Runner, "4712"), "POST", "/completion", "127.0.0.1:4711", json, "", false},
		"a seal for something else":   {key.Of(seal.Store), "POST", "/completion", "127.0.0.1:4711", json, "", false},
		"another server":              {seal.New().Of(seal.Runner, port), "POST", "/completion", "127.0.0.1:4711", json, "", false},
		"a rebound name":              {fits, "POST", "/completion", "evil.example:4711", json, "", false},
		"a page":                      {fits, "POST", "/completion", "127.0.0.1:4711", json, "https://evil.example", false},
		"a form":                      {fits, "POST", "/completion", "127.0.0.1:4711", "text/plain", "", false},
		"a form of no type":           {fits, "POST", "/load", "127.0.0.1:4711", "", "", false},
		"something that isn't served": {"", "POST", "/shutdown", "127.0.0.1:4711", json, "", false},
	} {
		request := httptest.NewRequest(row.method, row.path, strings.NewReader("{}"))
		request.Host = row.host
		for header, value := range map[string]string{seal.Header: row.seal, "Content-Type": row.kind, "Origin": row.origin} {
			if value != "" {
				request.Header.Set(header, value)
			}
		}
		answer := httptest.NewRecorder()
		asked = false
		guarded.ServeHTTP(answer, request)
		if asked != row.want || (answer.Code == 403) == row.want {
			t.Errorf("%s: %d", name, answer.Code)
		}
	}
}

func TestRunnerArguments(t *testing.T) {
	for _, row := range []struct {
		args        []string
		model, port string
		fails       bool
	}{
		{[]string{"--model", "m.gguf", "--port", "1234"}, "m.gguf", "1234", false},
		{[]string{"--ollama-engine", "--model", "m.gguf", "--port", "1234"}, "m.gguf", "1234", false},
		{[]string{"--ollama-engine", "--port", "1234"}, "", "1234", false},
		{[]string{"--mlx-engine", "--anything", "x"}, "", "", false},
		{[]string{"--model-path", "m.gguf"}, "", "", true},
	} {
		model, port, err := runnerArguments(row.args)
		if model != row.model || port != row.port || (err != nil) != row.fails {
			t.Errorf("%v: %q %q %v", row.args, model, port, err)
		}
	}
}
