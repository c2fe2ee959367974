package runner

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/pb"
)

func TestEmbedding_whenAskedFor_isTheSidecars(t *testing.T) {
	s := &fake.Sidecar{Embedding: []float32{0.6, -0.8}}
	server, _ := loadStub(t, s)
	embedding, tokens, err := server.Embedding(t.Context(), "hello \x02 there")
	if err != nil || !slices.Equal(embedding, s.Embedding) || tokens == 0 {
		t.Errorf("%v of %d tokens: %v", embedding, tokens, err)
	}
	asked := s.Asked()
	if asked.Prompt != "hello \x02 there" || !asked.Embeds || !asked.Plain || !asked.Truncate || asked.Options.NumCtx != nil {
		t.Errorf("%v", asked)
	}
}

// A 400 for a text that may be cut has stock cut it, by the stub model's tokens, and ask again.
func TestEmbedding_whenRefused_isBadRequestOnlyWhereStockMustNotCut(t *testing.T) {
	for name, row := range map[string]struct {
		body string
		fail error
		want int
	}{
		"too long":          {`{"kafila":{"whole":true,"num_ctx":64},"content":"a"}`, status.Error(codes.InvalidArgument, "too long"), 400},
		"empty":             {`{"content":""}`, status.Error(codes.InvalidArgument, "the prompt is empty"), 422},
		"full":              {`{"content":"a"}`, status.Error(codes.ResourceExhausted, "full"), 503},
		"no JSON":           {`{"content":`, nil, 422},
		"more than allowed": {`{"content":"` + strings.Repeat("a", requestLimitBytes) + `"}`, nil, 422},
	} {
		socket, _ := fake.Start(t, &fake.Sidecar{Fails: row.fail})
		conn, err := sidecar.Dial(socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answer := httptest.NewRecorder()
		newProxy("s", pb.NewSidecarClient(conn), key).ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/embedding", strings.NewReader(row.body)))
		if answer.Code != row.want {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}
