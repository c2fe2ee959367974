package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/ollama/ollama/envconfig"
	"github.com/ollama/ollama/llm"
	"github.com/ollama/ollama/logutil"
	"github.com/ollama/ollama/runner"

	"kafila/ollama/pb"
)

// The stock scheduler starts its own executable, us, as `runner …` for every model and talks to it over HTTP. For a
// session's model we answer that protocol (of Ollama 0.17.4) by passing each completion to the sidecar.

const parentPollInterval = 500 * time.Millisecond

// runRunner is the process that the scheduler starts; arguments are those after "runner".
func runRunner(args []string) error {
	go exitWithParent()
	model, port, err := runnerArguments(args)
	if err != nil {
		return err
	}
	session := sessionOf(model)
	if session == "" {
		return runner.Execute(args)
	}
	if port == "" {
		return errors.New("the server started its runner without a port, which this build doesn't expect")
	}
	return serveProxy(session, port)
}

// runnerArguments picks out the model's path and the port. Image and MLX engines have arguments of their own and no
// model file; for them both are empty.
func runnerArguments(args []string) (model, port string, err error) {
	if len(args) > 0 && (args[0] == "--imagegen-engine" || args[0] == "--mlx-engine") {
		return "", "", nil
	}
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&model, "model", "", "")
	flags.StringVar(&port, "port", "", "")
	flags.Bool("ollama-engine", false, "")
	flags.Bool("verbose", false, "")
	if err := flags.Parse(args); err != nil {
		return "", "", fmt.Errorf("the server started its runner with arguments that this build doesn't know: %w", err)
	}
	return model, port, nil
}

// exitWithParent ends this process when the server that started it is gone; there is no portable signal for that.
func exitWithParent() {
	parent := os.Getppid()
	if pid, err := strconv.Atoi(os.Getenv(serverPidVariable)); err == nil {
		parent = pid
	}
	for range time.Tick(parentPollInterval) {
		if os.Getppid() != parent {
			os.Exit(0)
		}
	}
}

func serveProxy(session, port string) error {
	slog.SetDefault(logutil.NewLogger(os.Stderr, envconfig.LogLevel()))
	conn, err := dialSidecar(os.Getenv(socketVariable))
	if err != nil {
		return err
	}
	defer conn.Close()
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	slog.Info("session_runner_started", "session", session, "address", listener.Addr())
	return http.Serve(listener, newProxy(session, pb.NewSidecarClient(conn)))
}

// A proxy speaks the runner protocol for one session.
type proxy struct {
	session string
	sidecar pb.SidecarClient
}

func newProxy(session string, sidecar pb.SidecarClient) http.Handler {
	p := &proxy{session: session, sidecar: sidecar}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", p.health)
	mux.HandleFunc("POST /load", p.load)
	mux.HandleFunc("POST /completion", p.completion)
	mux.HandleFunc("POST /embedding", p.embedding)
	return mux
}

// health is always ready: whether the sidecar is there is told by each completion, in words.
func (p *proxy) health(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, llm.ServerStatusResponse{Status: llm.ServerStatusReady, Progress: 1})
}

// load has nothing to do: the shard's memory belongs to the session, not to this process.
func (p *proxy) load(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, llm.LoadResponse{Success: true})
}

// embedding is refused, and not with 400, which stock takes for an input that is too long.
func (p *proxy) embedding(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "a session's model makes no embeddings: use an embedding model on this machine", http.StatusNotImplemented)
}

// completion passes one request to the sidecar. The scheduler closes the connection when its client is gone, which
// cancels the call and so frees the sequence everywhere.
func (p *proxy) completion(w http.ResponseWriter, r *http.Request) {
	var request llm.CompletionRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, fmt.Sprintf("bad completion request: %s", err), http.StatusBadRequest)
		return
	}
	prompt, framed := envelopeIn(request.Prompt)
	stream, err := p.sidecar.Generate(r.Context(), generateRequest(p.session, prompt, &request))
	if err != nil {
		code, sentence := explain(err)
		http.Error(w, sentence, code)
		return
	}
	answer := newAnswer(w, framed)
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errors.New("the sidecar ended the answer before it was done")
		}
		if err != nil {
			answer.fail(explain(err))
			return
		}
		answer.text(reply.Text)
		if reply.Done {
			drain(stream) // what stock does on `done` would cancel a call that has just ended well
			answer.done(reply)
			return
		}
	}
}

// drain reads a stream to its end.
func drain(stream grpc.ServerStreamingClient[pb.GenerateReply]) {
	for {
		if _, err := stream.Recv(); err != nil {
			return
		}
	}
}

// generateRequest translates stock's request; what stock leaves at its "not set" stays unset.
func generateRequest(session, prompt string, r *llm.CompletionRequest) *pb.GenerateRequest {
	return &pb.GenerateRequest{
		Session:     session,
		Prompt:      prompt,
		Options:     options(r),
		Truncate:    r.Truncate,
		Shift:       r.Shift,
		Format:      answerFormat(r.Format),
		Logprobs:    r.Logprobs,
		TopLogprobs: uint32(r.TopLogprobs),
		Images:      uint32(len(r.Images)),
	}
}

func options(r *llm.CompletionRequest) *pb.Options {
	if r.Options == nil {
		return &pb.Options{}
	}
	o := r.Options
	translated := &pb.Options{
		NumCtx:           int32Of(o.NumCtx),
		NumPredict:       int32Of(o.NumPredict),
		NumKeep:          int32Of(o.NumKeep),
		Temperature:      &o.Temperature,
		TopK:             int32Of(o.TopK),
		TopP:             &o.TopP,
		MinP:             &o.MinP,
		RepeatPenalty:    &o.RepeatPenalty,
		RepeatLastN:      int32Of(o.RepeatLastN),
		PresencePenalty:  &o.PresencePenalty,
		FrequencyPenalty: &o.FrequencyPenalty,
		Stop:             o.Stop,
	}
	if o.Seed >= 0 { // -1 is stock's "draw one"
		seed := int64(o.Seed)
		translated.Seed = &seed
	}
	return translated
}

func int32Of(n int) *int32 {
	small := int32(n)
	return &small
}

// answerFormat gives "json", a JSON schema, or "" for what a client may have put in `format`.
func answerFormat(raw json.RawMessage) string {
	switch text := strings.TrimSpace(string(raw)); text {
	case "", "null", `""`:
		return ""
	case `"json"`:
		return "json"
	default:
		return text
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		slog.Debug("runner_answer_not_sent", "error", err)
	}
}
