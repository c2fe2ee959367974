package server_test

import (
	"io"
	"net/http"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
)

func TestMetrics_areTheSidecars_forTheOwnerAlone(t *testing.T) {
	s := servertest.Start(t, &fake.Sidecar{})
	for token, want := range map[string]int{"": 401, "another": 401, servertest.Token: 200} {
		code, kind, body := metrics(t, s, token)
		if code != want || (want == 200) != (body == "kafila_sequences 2.0\n") {
			t.Errorf("%q: %d %s", token, code, body)
		}
		if want == 200 && kind != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("%s", kind)
		}
	}
}

func TestMetrics_whenTheSidecarIsGone_are503(t *testing.T) {
	s := servertest.Start(t, &fake.Sidecar{})
	s.Kill()
	if code, _, body := metrics(t, s, servertest.Token); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, body)
	}
}

func metrics(t *testing.T, s *servertest.Server, token string) (code int, kind, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL.JoinPath("metrics").String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get("Content-Type"), string(said)
}
