package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/front"
	"kafila/ollama/internal/seal"
	"kafila/ollama/pb"
)

// justStarted is a server that was started a moment ago: its sidecar has told nothing yet. Each question that stock gets is
// sent to passed.
func justStarted(t *testing.T, s *fake.Sidecar) (*SessionModels, *front.Front, chan string) {
	t.Helper()
	models, _ := modelsOf(t, s)
	passed := make(chan string, 10)
	return models, &front.Front{Models: models.Known, Key: seal.New(), Patience: time.Minute, Stock: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		passed <- r.URL.Path
		fmt.Fprint(w, "stock")
	})}, passed
}

func question(path, model string) *http.Request {
	return httptest.NewRequest("POST", path, strings.NewReader(fmt.Sprintf(`{"model":%q}`, model)))
}

func TestComeback_whenASessionIsAskedBeforeItIsBack_theQuestionWaitsForItsModel(t *testing.T) {
	sleeping := fake.ReadySession()
	sleeping.State = "sleeping"
	models, f, passed := justStarted(t, &fake.Sidecar{Sessions: []*pb.Session{sleeping}})
	routes := []string{"/api/generate", "/api/chat", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}
	for _, path := range routes {
		go f.ServeHTTP(httptest.NewRecorder(), question(path, fake.ModelName))
	}
	f.ServeHTTP(httptest.NewRecorder(), question("/api/chat", "llama3"))
	if path := <-passed; path != "/api/chat" || len(passed) != 0 {
		t.Error("a local model's question waited, or a session's did not")
	}
	models.reconcile()
	for range routes {
		<-passed
	}
	if models.Known.Called(fake.ModelName) == nil || models.Known.Comeback.IsUnderWay() {
		t.Error("questions were let through before the model was made anew")
	}
}

func TestComeback_whenASessionIsNoMore_nobodyWaits(t *testing.T) {
	models, f, passed := justStarted(t, &fake.Sidecar{})
	models.reconcile()
	f.ServeHTTP(httptest.NewRecorder(), question("/api/chat", fake.ModelName))
	<-passed
}

func TestComeback_whenASessionClosesMeanwhile_nobodyWaitsLonger(t *testing.T) {
	models, f, passed := justStarted(t, &fake.Sidecar{})
	models.Known.Comeback.Expect([]*pb.Session{fake.ReadySession()})
	go f.ServeHTTP(httptest.NewRecorder(), question("/api/chat", fake.ModelName))
	models.forget(fake.ReadySession().Id)
	<-passed
}

func TestComeback_whenItTakesTooLong_isSaidInTheFormOfTheAPI(t *testing.T) {
	models, f, passed := justStarted(t, &fake.Sidecar{})
	if models.Known.Comeback.Await(t.Context(), fake.ModelName, time.Millisecond) {
		t.Error("nobody is back")
	}
	for path, wanted := range map[string]string{
		"/api/generate":        `{"error":"the session of `,
		"/v1/chat/completions": `{"error":{"message":"the session of `,
		"/v1/messages":         `{"type":"error","error":{"type":"overloaded_error","message":"the session of `,
	} {
		answer := httptest.NewRecorder()
		f.Patience = time.Millisecond
		f.ServeHTTP(answer, question(path, fake.ModelName))
		if answer.Code != http.StatusServiceUnavailable || !strings.HasPrefix(answer.Body.String(), wanted) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
	if len(passed) != 0 {
		t.Error("stock was asked all the same")
	}
}
