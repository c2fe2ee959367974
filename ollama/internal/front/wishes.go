package front

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"

	"github.com/ollama/ollama/api"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/headway"
	"kafila/ollama/pb"
)

// An asking is one request for an answer of a session's model, before stock has it.
type asking struct {
	request object
	session *pb.Session
	wishes  envelope.Wishes
}

// askings are the routes that ask a model, and what is taken out of their requests where that is a session's: what would
// make stock load the model anew, for which others would have to wait, and what stock can't pass on. A taker says why
// something can't be done, or "".
var askings = map[string][]func(*asking) string{
	"POST /api/generate":        {(*asking).refuseRendering, (*asking).refuseStop, (*asking).takeLoading, (*asking).takeContext, (*asking).takeSuffix, (*asking).takeFormat},
	"POST /api/chat":            {(*asking).refuseRendering, (*asking).refuseStop, (*asking).takeLoading, (*asking).takeFormat, (*asking).takeTools},
	"POST /api/embed":           {(*asking).takeLoading, (*asking).noteTruncate},
	"POST /api/embeddings":      {(*asking).takeLoading},
	"POST /v1/completions":      {(*asking).refuseRendering, (*asking).takeSuffix},
	"POST /v1/chat/completions": {(*asking).refuseRendering, (*asking).takeResponseFormat, (*asking).takeTools, (*asking).joinParts},
	"POST /v1/responses":        {(*asking).refuseRendering, (*asking).takeTextFormat, (*asking).takeFlatTools},
	"POST /v1/messages":         {(*asking).refuseRendering, (*asking).takeFlatTools, (*asking).resultsFirst},

	"POST /v1/images/generations": {(*asking).refusePictures},
	"POST /v1/images/edits":       {(*asking).refusePictures},
}

// asks gives the request of a route that asks a model as it is passed to stock, and the sentence with which it is refused,
// or "". What is no session's, or can't be read, stays as it is: stock refuses what can't be read.
func (f *Front) asks(r *http.Request) (*http.Request, string) {
	takers, ok := askings[r.Method+" "+r.URL.Path]
	if !ok || !f.Models.Any() {
		return r, ""
	}
	request, err := readObject(r)
	if err != nil {
		return r, ""
	}
	var name string
	if request.read("model", &name) != nil {
		return r, ""
	}
	session := f.Models.Called(name)
	if session == nil {
		return r, ""
	}
	a := &asking{request: request, session: session}
	for _, take := range takers {
		if sentence := take(a); sentence != "" {
			return r, sentence
		}
	}
	a.wishes.TellsHeadway = strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get(headway.Header) != ""
	f.Models.AsksContext(session, a.wishes.NumCtx)
	return a.passed(r), ""
}

// readObject reads the request's JSON and leaves the body as it was. Stock reads all of it at once too.
func readObject(r *http.Request) (request object, err error) {
	var read bytes.Buffer
	body := r.Body
	err = json.NewDecoder(io.TeeReader(body, &read)).Decode(&request)
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, body), body}
	return request, err
}

// passed gives the request as stock gets it, the wishes on its course.
func (a *asking) passed(r *http.Request) *http.Request {
	body, err := json.Marshal(a.request)
	if err != nil {
		slog.Debug("request_not_taken_apart", "error", err)
		return r
	}
	ctx, course := withCourse(r.Context())
	course.wishes = &a.wishes
	passed := r.Clone(ctx)
	passed.Body = io.NopCloser(bytes.NewReader(body))
	passed.ContentLength = int64(len(body))
	passed.TransferEncoding = nil
	return passed
}

// refuseRendering: stock would tell the sealed envelope in place of a prompt.
func (a *asking) refuseRendering() string {
	var only bool
	if a.request.read("_debug_render_only", &only) == nil && only {
		return "the prompts of a session are rendered by its head: they can't be shown here"
	}
	return ""
}

// refusePictures: stock would have a model of words answer, for as long as it likes, and send no picture.
func (a *asking) refusePictures() string {
	return a.session.Vehicle.Name + " makes no pictures: it answers in words"
}

// refuseStop: a request without prompt that keeps the model for no time is what `ollama stop` makes.
func (a *asking) refuseStop() string {
	var prompt string
	var messages []json.RawMessage
	var keep *api.Duration
	unreadable := a.request.read("prompt", &prompt) != nil || a.request.read("messages", &messages) != nil ||
		a.request.read("keep_alive", &keep) != nil
	if unreadable || prompt != "" || len(messages) > 0 || keep == nil || keep.Duration != 0 {
		return ""
	}
	return a.session.Vehicle.Name + " is the model of a session, and stays as long as that: leave it with ollama session leave"
}

// loading options are those that stock compares with what the model was loaded with. Values that stock would refuse stay,
// so that it does.
var loadingOptions = map[string]func(json.RawMessage) bool{
	"num_ctx":             isNumber,
	"num_batch":           isNumber,
	"num_gpu":             isNumber,
	"main_gpu":            isNumber,
	"num_thread":          isNumber,
	"use_mmap":            isBool,
	"use_imagegen_runner": func(json.RawMessage) bool { return true },
}

func isNumber(value json.RawMessage) bool {
	var number *float64
	return json.Unmarshal(value, &number) == nil
}

func isBool(value json.RawMessage) bool {
	var truth *bool
	return json.Unmarshal(value, &truth) == nil
}

// takeLoading takes keep_alive and the loading options out. The model stays as long as its session, with what that has;
// a context below the session's limits the request alone.
func (a *asking) takeLoading() string {
	a.request = a.request.edited(func(f field) (field, bool) {
		switch {
		case strings.EqualFold(f.name, "keep_alive"):
			var keep *api.Duration
			return f, json.Unmarshal(f.value, &keep) != nil
		case strings.EqualFold(f.name, "options"):
			f.value = a.withoutLoading(f.value)
		}
		return f, true
	})
	return ""
}

func (a *asking) withoutLoading(value json.RawMessage) json.RawMessage {
	var options object
	if json.Unmarshal(value, &options) != nil || options == nil {
		return value
	}
	options = options.edited(func(f field) (field, bool) {
		if f.name == "guesses" && a.takeGuesses(f.value) {
			return f, false
		}
		isTaken, ok := loadingOptions[f.name]
		if !ok || !isTaken(f.value) {
			return f, true
		}
		if f.name == "num_ctx" {
			a.takeNumCtx(f.value)
		}
		return f, false
	})
	rest, err := json.Marshal(options)
	if err != nil {
		return value
	}
	return rest
}

// takeNumCtx reads the number as stock does: what is below 4 is 4.
func (a *asking) takeNumCtx(value json.RawMessage) {
	var number *float64
	if json.Unmarshal(value, &number) == nil && number != nil {
		a.wishes.NumCtx = int(min(max(*number, 4), math.MaxInt32))
	}
}

// takeGuesses reads whether a step may guess tokens, or how many; stock knows no such option.
func (a *asking) takeGuesses(value json.RawMessage) bool {
	var wanted bool
	if json.Unmarshal(value, &wanted) == nil {
		if !wanted {
			a.wishes.Guesses = new(uint32)
		}
		return true
	}
	var most uint32
	if json.Unmarshal(value, &most) != nil {
		return false
	}
	a.wishes.Guesses = &most
	return true
}

// takeContext has real ids go in and out; stock knows only the stub model's. A raw request has none, and stock says so.
func (a *asking) takeContext() string {
	var raw bool
	var ids []int64
	if a.request.read("raw", &raw) != nil || raw || a.request.read("context", &ids) != nil {
		return ""
	}
	for _, id := range ids {
		if id < 0 || id > math.MaxInt32 {
			return "the context holds a number that is no token of this model: send what an earlier answer of this session gave"
		}
		a.wishes.Context = append(a.wishes.Context, int32(id))
	}
	a.wishes.TellsContext = true
	a.request = a.request.without("context")
	return ""
}

// noteTruncate tells what stock, which cuts a text by the stub model's tokens, keeps to itself: the head cuts it.
func (a *asking) noteTruncate() string {
	var truncate *bool
	a.wishes.Whole = a.request.read("truncate", &truncate) == nil && truncate != nil && !*truncate
	return ""
}

// takeSuffix: where the model can fill in, its head does; elsewhere stock says that the model can't.
func (a *asking) takeSuffix() string {
	var suffix, template string
	var raw bool
	if !a.session.Vehicle.Insert || a.request.read("raw", &raw) != nil || a.request.read("template", &template) != nil ||
		template != "" || a.request.read("suffix", &suffix) != nil {
		return ""
	}
	a.request = a.request.without("suffix")
	if !raw {
		a.wishes.Suffix = suffix
	}
	return ""
}
