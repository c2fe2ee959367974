package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/ollama/ollama/llm"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/pb"
)

// An embeddingRequest is stock's, with what our server put before it.
type embeddingRequest struct {
	llm.EmbeddingRequest
	Wishes envelope.Wishes `json:"kafila"` // envelope.WishesKey
}

// embedding passes one text to the sidecar. Stock makes lists of texts, fewer dimensions and the final norm of it.
func (p *proxy) embedding(w http.ResponseWriter, r *http.Request) {
	request, err := p.readEmbedding(r.Body)
	if err != nil {
		io.Copy(io.Discard, r.Body) // as in completion
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	reply, err := p.embedded(r.Context(), request)
	if err != nil {
		code, sentence := sidecar.Explain(err)
		if code == http.StatusBadRequest && request.Truncate {
			code = http.StatusUnprocessableEntity // stock takes a 400 for a text that it has to cut itself
		}
		http.Error(w, sentence, code)
		return
	}
	writeJSON(w, llm.EmbeddingResponse{Embedding: reply.Embedding, PromptEvalCount: int(reply.PromptTokens)})
}

// embedded waits for the last reply, which is the only one.
func (p *proxy) embedded(ctx context.Context, request *pb.GenerateRequest) (*pb.GenerateReply, error) {
	stream, reply, err := p.begin(ctx, request)
	for ; err == nil; reply, err = stream.Recv() {
		if reply.Done {
			drain(stream)
			return reply, nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the sidecar ended the call before it was done")
	}
	return nil, err
}

// readEmbedding takes a text in, of which no more is kept than the sidecar takes.
func (p *proxy) readEmbedding(body io.Reader) (*pb.GenerateRequest, error) {
	var asked embeddingRequest
	limited := &io.LimitedReader{R: body, N: bodyLimitBytes}
	if err := json.NewDecoder(limited).Decode(&asked); err != nil {
		if limited.N == 0 {
			return nil, errTooLarge
		}
		return nil, fmt.Errorf("bad embedding request: %w", err)
	}
	request := &pb.GenerateRequest{
		Session:  p.session,
		Prompt:   asked.Content,
		Options:  &pb.Options{},
		Truncate: !asked.Wishes.Whole,
		Plain:    true,
		Embeds:   true,
	}
	if asked.Wishes.NumCtx > 0 {
		request.Options.NumCtx = int32Of(asked.Wishes.NumCtx)
	}
	if proto.Size(request) > requestLimitBytes {
		return nil, errTooLarge
	}
	return request, nil
}
