package front

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/headway"
)

// A pretended way through stock: it asks a runner, and makes an event of each line, as stock's middleware does.
type passage struct {
	lines     []string // of the runner
	isSession bool
	pause     func() // before the last line
	refuses   int    // a status, in place of events
}

func (p passage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if p.isSession {
			w.Header().Set(envelope.SessionHeader, "1")
		}
		for _, line := range p.lines {
			fmt.Fprint(w, line)
			w.(http.Flusher).Flush()
		}
	}))
	defer runner.Close()
	response := asStockAsks(r, runner.URL)
	defer response.Body.Close()
	if p.refuses != 0 {
		w.WriteHeader(p.refuses)
		fmt.Fprint(w, `{"error":"refused"}`)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	scanner := bufio.NewScanner(response.Body)
	for number := 0; scanner.Scan(); number++ {
		if number == len(p.lines)-1 && p.pause != nil {
			p.pause()
		}
		fmt.Fprintf(w, "data: %s\n\n", scanner.Text())
		w.(http.Flusher).Flush()
	}
}

const textLine = `{"content":"{\"kafila_failure\":{\"status\":503}}"}` + "\n"

var failureLine = string(envelope.Failure{Status: 503, Sentence: `bob "was" lost`}.Line())

// through gives the events that a client gets of a route.
func through(route string, every time.Duration, p passage) []string {
	form := streamForms[route]
	form.every = every
	method, path, _ := strings.Cut(route, " ")
	answer := httptest.NewRecorder()
	form.serve(answer, httptest.NewRequest(method, path, nil), p)
	return strings.Split(strings.TrimSuffix(answer.Body.String(), "\n\n"), "\n\n")
}

func TestStreams_whenASessionsAnswerFails_endWithAnErrorOfTheAPI(t *testing.T) {
	for route, wanted := range map[string]string{
		"POST /v1/chat/completions": `{"error":{"message":"bob \"was\" lost","type":"api_error"`,
		"POST /v1/completions":      `{"error":{"message":"bob \"was\" lost","type":"api_error"`,
		"POST /v1/responses":        `"message":"bob \"was\" lost"`,
		"POST /v1/messages":         `"error":{"type":"overloaded_error","message":"bob \"was\" lost"}`,
	} {
		events := through(route, time.Hour, passage{lines: []string{textLine, failureLine}, isSession: true})
		if len(events) != 3 {
			t.Fatalf("%s: %q", route, events)
		}
		last := events[2]
		_, data, _ := strings.Cut(last, "data: ")
		if !json.Valid([]byte(data)) || !strings.Contains(data, wanted) {
			t.Errorf("%s ended with %q", route, last)
		}
		if named := strings.HasPrefix(last, "event: error\n"); named == strings.Contains(route, "completions") {
			t.Errorf("%s: the error's event is %q", route, last)
		}
	}
}

func TestStreams_whenNothingFails_orNoSessionAnswers_passByteForByte(t *testing.T) {
	for name, p := range map[string]passage{
		"a whole answer":            {lines: []string{textLine, textLine}, isSession: true},
		"a model of this machine":   {lines: []string{textLine, failureLine}},
		"a pause of such a model":   {lines: []string{textLine, textLine}, pause: func() { time.Sleep(60 * time.Millisecond) }},
		"a line that is half there": {lines: []string{textLine, strings.TrimSuffix(failureLine, "\n")[:20] + "\n"}, isSession: true},
	} {
		every := time.Hour
		if p.pause != nil {
			every = 10 * time.Millisecond
		}
		for route := range streamForms {
			if events := through(route, every, p); len(events) != 2 {
				t.Errorf("%s, %s: %q", name, route, events)
			}
		}
	}
}

// A patient client's writer tells of each keep-alive.
type patient struct {
	*httptest.ResponseRecorder
	kept chan struct{}
	said string
}

func (p *patient) Write(data []byte) (int, error) {
	if string(data) == p.said {
		p.kept <- struct{}{}
	}
	return p.ResponseRecorder.Write(data)
}

func TestStreams_whenASessionsAnswerPauses_areKeptAlive(t *testing.T) {
	for route, wanted := range map[string]string{
		"POST /v1/chat/completions": ": keep-alive\n\n",
		"POST /v1/messages":         "event: ping\ndata: {\"type\":\"ping\"}\n\n",
	} {
		form := streamForms[route]
		form.every = time.Millisecond
		answer := &patient{httptest.NewRecorder(), make(chan struct{}, 1000), wanted}
		form.serve(answer, httptest.NewRequest("POST", "/", nil), passage{
			lines: []string{textLine, textLine}, isSession: true, pause: func() { <-answer.kept; <-answer.kept }})
		first, last := strings.Index(answer.Body.String(), wanted), strings.LastIndex(answer.Body.String(), "data: {\"content")
		if first <= 0 || last <= first {
			t.Errorf("%s: %q", route, answer.Body)
		}
	}
}

// A pretended way through stock of an answer that its runner breaks off: it tells the error in stock's words.
func brokenOff(stock func(http.ResponseWriter, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(envelope.SessionHeader, "1")
			fmt.Fprint(w, textLine, failureLine)
			w.(http.Flusher).Flush()
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			fmt.Fprint(buffered, "0\r\n\"bob was lost, unexpected EOF\"\r\n\r\n")
			buffered.Flush()
		}))
		defer runner.Close()
		response := asStockAsks(r, runner.URL)
		defer response.Body.Close()
		_, err := io.ReadAll(response.Body)
		stock(w, fmt.Errorf("error reading llm response: %w", err))
	})
}

func TestStreams_whenAnAnswerIsBrokenOff_tellItsOneSentenceInTheFormOfTheAPI(t *testing.T) {
	for route, wanted := range map[string]string{
		"POST /api/generate":        `{"error":"bob \"was\" lost"}`,
		"POST /api/chat":            `{"error":"bob \"was\" lost"}`,
		"POST /v1/chat/completions": `{"error":{"message":"bob \"was\" lost","type":"api_error","param":null,"code":null}}`,
		"POST /v1/responses":        `{"error":{"message":"bob \"was\" lost","type":"api_error","param":null,"code":null}}`,
		"POST /v1/messages":         `{"type":"error","error":{"type":"overloaded_error","message":"bob \"was\" lost"}`,
	} {
		method, path, _ := strings.Cut(route, " ")
		answer := httptest.NewRecorder()
		streamForms[route].serve(answer, httptest.NewRequest(method, path, nil), brokenOff(func(w http.ResponseWriter, err error) {
			if !errors.Is(err, errFailed) {
				t.Errorf("stock reads %v", err)
			}
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"error":%q}`, err)
		}))
		if body := strings.TrimSpace(answer.Body.String()); answer.Code != http.StatusServiceUnavailable || !strings.HasPrefix(body, wanted) {
			t.Errorf("%s: %d %s", route, answer.Code, body)
		}
	}
}

func TestStreams_whenALineOfOllamasOwnTellsTheError_itTellsTheOneSentence(t *testing.T) {
	answer := httptest.NewRecorder()
	streamForms["POST /api/chat"].serve(answer, httptest.NewRequest("POST", "/api/chat", nil), brokenOff(func(w http.ResponseWriter, err error) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(w, `{"message":{"content":"{\"error\":"}}`)
		fmt.Fprintf(w, `{"error":%q}`+"\n", err)
	}))
	if wanted := `{"message":{"content":"{\"error\":"}}` + "\n" + `{"error":"bob \"was\" lost"}` + "\n"; answer.Body.String() != wanted {
		t.Errorf("%s", answer.Body)
	}
}

func TestStreams_whenRefusedWithAStatus_sayNothingMore(t *testing.T) {
	form := streamForms["POST /v1/chat/completions"]
	answer := httptest.NewRecorder()
	form.serve(answer, httptest.NewRequest("POST", "/", nil), passage{
		lines: []string{textLine, failureLine}, isSession: true, refuses: http.StatusServiceUnavailable})
	if answer.Code != http.StatusServiceUnavailable || answer.Body.String() != `{"error":"refused"}` {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// asStockAsks asks a runner for what a client's request wants.
func asStockAsks(r *http.Request, runner string) *http.Response {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, runner, nil)
	if err != nil {
		panic(err)
	}
	response, err := (&http.Client{Transport: &listening{next: http.DefaultTransport}}).Do(request)
	if err != nil {
		panic(err)
	}
	return response
}

func TestStreams_whenTheClientAsksHowFarItIs_haveTheRunnersUpdatesBeforeTheAnswer(t *testing.T) {
	update := string(headway.Update{Doing: "reading", Tokens: 1, Of: 2}.Line())
	for asked, wanted := range map[bool]string{true: update, false: ""} {
		request := httptest.NewRequest("POST", "/api/chat", nil)
		ctx, course := withCourse(request.Context())
		course.wishes = &envelope.Wishes{TellsHeadway: asked}
		answer := httptest.NewRecorder()
		streamForms["POST /api/chat"].serve(answer, request.WithContext(ctx), passage{lines: []string{update}, isSession: true})
		if answer.Body.String() != wanted+"data: "+update+"\n" {
			t.Errorf("asked %t: %s", asked, answer.Body)
		}
	}
}
