package front

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ollama/ollama/anthropic"
	"github.com/ollama/ollama/openai"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/headway"
)

// keepAliveEvery is well below the minute after which proxies and clients give a silent stream up.
const keepAliveEvery = 10 * time.Second

// silenceTold is after how long a person who waits is told so.
const silenceTold = time.Second

// A streamForm is what server-sent events of an API look like where the answer pauses, and where it can't go on. Stock
// ends such a stream as if all were well.
type streamForm struct {
	keepAlive string
	failed    func(failure envelope.Failure, events int) string
	every     time.Duration
}

// streamForms are the routes that answer. In streams of Ollama's own API stock tells failures itself, if in other words,
// and their lines have nothing that would say nothing.
var streamForms = map[string]streamForm{
	"POST /v1/chat/completions": {": keep-alive\n\n", openAIError, keepAliveEvery},
	"POST /v1/completions":      {": keep-alive\n\n", openAIError, keepAliveEvery},
	"POST /v1/responses":        {": keep-alive\n\n", responsesError, keepAliveEvery},
	"POST /v1/messages":         {"event: ping\ndata: {\"type\":\"ping\"}\n\n", anthropicError, keepAliveEvery},
	"POST /api/generate":        {},
	"POST /api/chat":            {},
}

func openAIError(failure envelope.Failure, _ int) string {
	return event("", openai.NewError(failure.Status, failure.Sentence))
}

func anthropicError(failure envelope.Failure, _ int) string {
	return event("error", anthropic.NewError(failure.Status, failure.Sentence))
}

func responsesError(failure envelope.Failure, events int) string {
	return event("error", map[string]any{
		"type": "error", "code": "server_error", "message": failure.Sentence, "param": nil, "sequence_number": events,
	})
}

func event(name string, data any) string {
	body, err := json.Marshal(data)
	if err != nil {
		body = []byte("{}")
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	return fmt.Sprintf("%sdata: %s\n\n", name, body)
}

// serve has stock answer. For a session's model only, it keeps the stream alive in a pause and tells of a failure.
func (form streamForm) serve(w http.ResponseWriter, r *http.Request, stock http.Handler) {
	ctx, course := withCourse(r.Context())
	if course.wishes != nil && course.wishes.TellsHeadway {
		told := headway.NewWriter(w, silenceTold)
		defer told.Close()
		course.tell, w = told.Tell, told
	}
	s := &stream{ResponseWriter: w, form: form, course: course, path: r.URL.Path}
	defer s.end()
	stock.ServeHTTP(s, r.WithContext(ctx))
}

// A stream is an answer on its way to a client. Stock writes whole events at a time.
type stream struct {
	http.ResponseWriter
	form   streamForm
	course *course
	path   string

	mutex   sync.Mutex
	events  int
	within  bool // an event is not whole
	over    bool
	refused bool // by a status
	timer   *time.Timer
}

// Unwrap is for http.ResponseController.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stream) WriteHeader(status int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, failure := s.course.now(); failure != nil && status >= http.StatusBadRequest {
		s.refused, status = true, failure.Status
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *stream) Write(data []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if _, failure := s.course.now(); failure != nil && s.isError(data) {
		_, err := s.ResponseWriter.Write(failureIn(s.path, *failure))
		return len(data), err
	}
	n, err := s.ResponseWriter.Write(withContext(data, s.course.ids()))
	if err == nil {
		n = len(data)
	}
	s.within = !bytes.HasSuffix(data, []byte("\n\n"))
	s.events += bytes.Count(data, []byte("\n\n"))
	if s.timer != nil {
		s.timer.Reset(s.form.every)
	} else if s.form.keepAlive != "" && s.isEvents() {
		s.timer = time.AfterFunc(s.form.every, s.keepAlive)
	}
	return n, err
}

var (
	fieldBefore  = []byte(`,"context":[`) // within a text its quotes would be escaped
	numbersAfter = []byte(`]`)
)

// withContext gives one line of stock's answer with these token ids in place of the stub model's.
func withContext(line []byte, ids []uint32) []byte {
	before, rest, ok := bytes.Cut(line, fieldBefore)
	if !ok || len(ids) == 0 {
		return line
	}
	_, after, ok := bytes.Cut(rest, numbersAfter)
	numbers, err := json.Marshal(ids)
	if !ok || err != nil {
		return line
	}
	return slices.Concat(before, fieldBefore[:len(fieldBefore)-1], numbers, after)
}

func (s *stream) Flush() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.flush()
}

// CloseNotify is what gin asks of a writer.
func (s *stream) CloseNotify() <-chan bool {
	//lint:ignore SA1019 gin's streams use it
	if notifier, ok := s.ResponseWriter.(http.CloseNotifier); ok {
		return notifier.CloseNotify()
	}
	return make(chan bool)
}

func (s *stream) flush() {
	if flusher, ok := s.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

func (s *stream) keepAlive() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	isSession, failure := s.course.now()
	if s.over || failure != nil {
		return
	}
	if isSession && !s.within {
		s.say(s.form.keepAlive)
	}
	s.timer.Reset(s.form.every)
}

// end tells of a failure where the stream has begun; before that stock says it with a status.
func (s *stream) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.over = true
	if s.timer == nil {
		return
	}
	s.timer.Stop()
	if _, failure := s.course.now(); failure != nil && !s.within {
		s.say(s.form.failed(*failure, s.events))
	}
}

func (s *stream) say(text string) {
	if _, err := s.ResponseWriter.Write([]byte(text)); err == nil {
		s.flush()
	}
}

// isError is true of what stock tells an error by: all that comes after such a status, and a line of its own API.
func (s *stream) isError(data []byte) bool {
	return s.refused || strings.HasPrefix(s.path, "/api/") && bytes.HasPrefix(data, []byte(`{"error":`))
}

func (s *stream) isEvents() bool {
	kind, _, err := mime.ParseMediaType(s.Header().Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}
