package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ollama/ollama/manifest"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/stub"
)

// lookLimitBytes bounds what is read of a request to a route that is looked into. Stock reads all of it at once too.
const lookLimitBytes = 16 << 20

// A front stands before the stock server and refuses what must not be done to the models of sessions: they have one name,
// come by joining and go by leaving. What is asked of them is looked into (wishes.go), and what stock tells of them is put
// right (truths.go). Streams of APIs in which stock says nothing of an answer's failure get an end that tells it.
// Everything else passes through byte for byte.
type front struct {
	models *SessionModels
	key    seal.Key
	stock  http.Handler

	patience time.Duration // with a session that comes back, see comebackPatience
}

// asked is what the stock routes below take names from. encoding/json matches the fields as it does for stock.
type asked struct {
	Model, Name         string
	Source, Destination string
	From                string
	Alias, Target       string
	Files, Adapters     map[string]string // file name → digest
}

// model is the name that stock takes.
func (a asked) model() string { return cmp.Or(a.Model, a.Name) }

// refusals are the routes that are looked into: each says why not, or "".
var refusals = map[string]func(*front, asked) string{
	"POST /api/pull":                 (*front).refusePull,
	"POST /api/push":                 (*front).refusePush,
	"POST /api/copy":                 (*front).refuseCopy,
	"POST /api/create":               (*front).refuseCreate,
	"POST /api/experimental/aliases": (*front).refuseAlias,
	"DELETE /api/delete":             (*front).refuseDelete,
}

// ServeHTTP goes by the path that stock goes by, with its escapes undone, and not by patterns of a ServeMux.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := r.Method + " " + r.URL.Path
	if f.key.Fits(r.Header.Get(seal.Header), seal.Store) {
		f.stock.ServeHTTP(w, r)
		return
	}
	if refuse := refusals[route]; refuse != nil {
		f.guarded(w, r, refuse)
		return
	}
	if tell := tellings[route]; tell != nil {
		tell(f, w, r)
		return
	}
	if name, ok := strings.CutPrefix(route, "GET /v1/models/"); ok && f.models.called(name) != nil {
		f.tellModel(w, r, name)
		return
	}
	form, answers := streamForms[route]
	if answers && !f.awaitSession(w, r) {
		return
	}
	asked, refusal := f.asks(r)
	if refusal != "" {
		fail(w, r.URL.Path, envelope.Failure{Status: http.StatusBadRequest, Sentence: refusal})
		return
	}
	if answers {
		form.serve(w, asked, f.stock)
		return
	}
	f.stock.ServeHTTP(w, asked)
}

// guarded passes on what refuse has nothing against.
func (f *front) guarded(w http.ResponseWriter, r *http.Request, refuse func(*front, asked) string) {
	request, tooLarge := look(r)
	if tooLarge {
		writeError(w, http.StatusRequestEntityTooLarge, "the request is larger than 16 MiB")
		return
	}
	if sentence := refuse(f, request); sentence != "" {
		writeError(w, http.StatusForbidden, sentence)
		return
	}
	f.stock.ServeHTTP(w, r)
	if r.URL.Path == "/api/pull" || r.URL.Path == "/api/create" { // both fetch what others made
		f.models.removeCopies()
	}
}

// awaitSession holds a question to a session's model back until the session is back, if this server was just started.
// False when that took too long, and was said.
func (f *front) awaitSession(w http.ResponseWriter, r *http.Request) bool {
	if !f.models.comeback.isUnderWay() {
		return true
	}
	request, _ := look(r)
	name := request.model()
	if !sessionapi.IsModel(name) || f.models.comeback.await(r.Context(), name, f.patience) {
		return true
	}
	fail(w, r.URL.Path, envelope.Failure{Status: http.StatusServiceUnavailable, Sentence: "the session of " + name +
		" is coming back on this machine, which was just started: ask again in a moment"})
	return false
}

// look reads the request's JSON and leaves the body as it was. What can't be read stock will refuse.
func look(r *http.Request) (request asked, tooLarge bool) {
	var head bytes.Buffer
	body := r.Body
	err := json.NewDecoder(io.TeeReader(io.LimitReader(body, lookLimitBytes), &head)).Decode(&request)
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&head, body), body}
	return request, err != nil && head.Len() == lookLimitBytes
}

func (f *front) refusePull(a asked) string {
	if !sessionapi.IsModel(a.model()) {
		return ""
	}
	return a.model() + " is a name for the model of a session, which is never pulled: join the session with its code, " +
		"ollama run --session CODE"
}

func (f *front) refusePush(a asked) string {
	if !sessionapi.IsModel(a.model()) {
		return ""
	}
	return a.model() + " is a name for the model of a session, which can't be pushed: invite others to the session instead"
}

func (f *front) refuseCopy(a asked) string {
	if sessionapi.IsModel(a.Source) {
		return noCopies(a.Source)
	}
	return reserved(a.Destination)
}

func (f *front) refuseAlias(a asked) string {
	if sessionapi.IsModel(a.Target) {
		return noCopies(a.Target)
	}
	return reserved(a.Alias)
}

func (f *front) refuseCreate(a asked) string {
	if sessionapi.IsModel(a.From) {
		return noCopies(a.From)
	}
	for _, files := range []map[string]string{a.Files, a.Adapters} {
		for name, digest := range files {
			if path, err := manifest.BlobsPath(digest); err == nil && stub.Claims(path) {
				return noCopies(name)
			}
		}
	}
	return reserved(a.model())
}

// refuseDelete lets go what no session has any more.
func (f *front) refuseDelete(a asked) string {
	if !sessionapi.IsModel(a.model()) {
		return ""
	}
	session := f.models.called(a.model())
	if session == nil {
		return ""
	}
	return a.model() + " is the model of a session: leave that, with ollama session leave, and its model goes too"
}

func noCopies(name string) string {
	return name + " stands for the model of a session, which has one name: it can't be copied, and no model made from it"
}

func reserved(name string) string {
	if !sessionapi.IsModel(name) {
		return ""
	}
	return "names below " + strings.TrimSuffix(sessionapi.ModelPrefix, "/") + " are for the models of sessions: choose another"
}
