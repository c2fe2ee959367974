package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ollama/ollama/llm"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/headway"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/pb"
)

const (
	// requestLimitBytes is what the sidecar takes: MOST_REQUEST_BYTES in serving/intake/limits.py.
	requestLimitBytes = 16 << 20
	// bodyLimitBytes has room for as much with every byte escaped, as in \u003c.
	bodyLimitBytes = 6*requestLimitBytes + 64<<10
)

var errTooLarge = fmt.Errorf("this prompt has, with all that comes with it, more than %.1f MB: shorten it", requestLimitBytes/1e6)

// A proxy speaks the runner protocol for one session. key is the server's, which seals conversations.
type proxy struct {
	session string
	sidecar pb.SidecarClient
	key     seal.Key
}

// returnPatience is how long a request waits for a sidecar that is started again: its first start is due after a second,
// and MLX takes its time on a busy machine.
var returnPatience = 60 * time.Second

func newProxy(session string, sidecar pb.SidecarClient, key seal.Key) http.Handler {
	p := &proxy{session: session, sidecar: sidecar, key: key}
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

// completion passes one request to the sidecar. The scheduler closes the connection when its client is gone, which
// cancels the call and so frees the sequence everywhere.
func (p *proxy) completion(w http.ResponseWriter, r *http.Request) {
	request, framed, err := p.read(r.Body)
	if err != nil {
		// Stock, which still sends, would take a connection that closes now for a crash.
		if _, failed := io.Copy(io.Discard, r.Body); failed != nil {
			slog.Debug("runner_request_not_read", "error", failed)
		}
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	stream, reply, err := p.begin(r.Context(), request)
	if err != nil {
		code, sentence := sidecar.Explain(err)
		http.Error(w, sentence, code)
		return
	}
	w.Header().Set(envelope.SessionHeader, "1")
	answer := newAnswer(w, framed)
	for ; ; reply, err = stream.Recv() {
		if errors.Is(err, io.EOF) {
			err = errors.New("the sidecar ended the answer before it was done")
		}
		if err != nil {
			answer.fail(sidecar.Explain(err))
			return
		}
		if reply.Headway != nil {
			answer.headway(headway.Told(reply.Headway))
			continue
		}
		answer.text(reply.Text, logprobs(reply.Logprobs))
		if reply.Done {
			drain(stream) // what stock does on `done` would cancel a call that has just ended well
			answer.context(reply.Context)
			answer.done(reply)
			return
		}
	}
}

// begin asks for an answer and returns with its first piece. A sidecar that is not there, since it has just ended and is
// started again, is waited for.
func (p *proxy) begin(ctx context.Context, request *pb.GenerateRequest) (grpc.ServerStreamingClient[pb.GenerateReply], *pb.GenerateReply, error) {
	stream, reply, err := p.first(ctx, request)
	if !sidecar.IsGone(err) {
		return stream, reply, err
	}
	waiting, cancel := context.WithTimeout(ctx, returnPatience)
	defer cancel()
	if _, back := p.sidecar.Hello(waiting, &pb.HelloRequest{}, grpc.WaitForReady(true)); back != nil {
		return nil, nil, err
	}
	return p.first(ctx, request)
}

func (p *proxy) first(ctx context.Context, request *pb.GenerateRequest) (grpc.ServerStreamingClient[pb.GenerateReply], *pb.GenerateReply, error) {
	stream, err := p.sidecar.Generate(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	reply, err := stream.Recv()
	return stream, reply, err
}

// read takes a completion in, of which no more is kept than the sidecar takes.
func (p *proxy) read(body io.Reader) (request *pb.GenerateRequest, framed bool, err error) {
	var completion completionRequest
	limited := &io.LimitedReader{R: body, N: bodyLimitBytes}
	if err := json.NewDecoder(limited).Decode(&completion); err != nil {
		if limited.N == 0 {
			return nil, false, errTooLarge
		}
		return nil, false, fmt.Errorf("bad completion request: %w", err)
	}
	prompt, framed := envelope.Open(completion.Prompt, func(given, body string) bool { return p.key.Fits(given, seal.Chat, body) })
	begun, hasTools := framed && envelope.IsBegun(prompt), false
	if framed {
		prompt, hasTools = envelope.WithTools(prompt, completion.Wishes.Tools)
	}
	request = generateRequest(p.session, prompt, &completion)
	request.Tools = hasTools
	request.Plain, request.Begun = !framed, begun
	if proto.Size(request) > requestLimitBytes {
		return nil, false, errTooLarge
	}
	return request, framed, nil
}

// drain reads a stream to its end.
func drain(stream grpc.ServerStreamingClient[pb.GenerateReply]) {
	for {
		if _, err := stream.Recv(); err != nil {
			return
		}
	}
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		slog.Debug("runner_answer_not_sent", "error", err)
	}
}
