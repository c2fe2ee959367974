// Package front stands before the stock server: what is asked of sessions' models is looked into, and what stock tells of
// them is put right. It imports known, envelope, headway, seal, sessionapi, stub and pb.
package front

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/ollama/ollama/manifest"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/known"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/stub"
	"kafila/ollama/pb"
)

// lookLimitBytes bounds what is read of a request to a route that is looked into. Stock reads all of it at once too.
const lookLimitBytes = 16 << 20

// ComebackPatience is how long a request waits for a session that comes back after a start of this server: Python and MLX
// take their time on a busy machine, and the sidecar may have to be started twice.
const ComebackPatience = 60 * time.Second

// A Front refuses what must not be done to the models of sessions: they have one name, come by joining and go by leaving.
// What is asked of them is looked into (wishes.go), and what stock tells of them is put right (truths.go). Streams of APIs
// in which stock says nothing of an answer's failure get an end that tells it. Everything else passes through byte for byte.
type Front struct {
	Models  *known.Models
	Sidecar Cards
	Fetched func() // hears that stock has taken in what others made
	Key     seal.Key
	Stock   http.Handler

	Patience time.Duration // with a session that comes back, see ComebackPatience
}

// Cards tell what the checkpoint of a session says of itself: a sidecar's client does.
type Cards interface {
	ShowModel(ctx context.Context, request *pb.SessionRequest, options ...grpc.CallOption) (*pb.ModelCard, error)
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
var refusals = map[string]func(*Front, asked) string{
	"POST /api/pull":                 (*Front).refusePull,
	"POST /api/push":                 (*Front).refusePush,
	"POST /api/copy":                 (*Front).refuseCopy,
	"POST /api/create":               (*Front).refuseCreate,
	"POST /api/experimental/aliases": (*Front).refuseAlias,
	"DELETE /api/delete":             (*Front).refuseDelete,
}

// StandBefore registers it on the mux that stock serves, which has its own handler at "/". The two wild patterns are all
// other paths: stock undoes escapes such as %2F that a narrower pattern would miss.
func (f *Front) StandBefore(mux *http.ServeMux) {
	f.Stock = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, _ := mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}})
		handler.ServeHTTP(w, r)
	})
	mux.Handle("/{one}", f)
	mux.Handle("/{first}/{rest...}", f)
}

// ServeHTTP goes by the path that stock goes by, with its escapes undone, and not by patterns of a ServeMux.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := r.Method + " " + r.URL.Path
	if f.Key.Fits(r.Header.Get(seal.Header), seal.Store) {
		f.Stock.ServeHTTP(w, r)
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
	name, isModel := strings.CutPrefix(route, "GET /v1/models/")
	if isModel && (strings.Contains(name, "/") || f.Models.Called(name) != nil) {
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
		form.serve(w, asked, f.Stock)
		return
	}
	f.Stock.ServeHTTP(w, asked)
}

// guarded passes on what refuse has nothing against.
func (f *Front) guarded(w http.ResponseWriter, r *http.Request, refuse func(*Front, asked) string) {
	request, tooLarge := look(r)
	if tooLarge {
		fail(w, r.URL.Path, envelope.Failure{Status: http.StatusRequestEntityTooLarge, Sentence: "the request is larger than 16 MiB"})
		return
	}
	if sentence := refuse(f, request); sentence != "" {
		fail(w, r.URL.Path, envelope.Failure{Status: http.StatusForbidden, Sentence: sentence})
		return
	}
	f.Stock.ServeHTTP(w, r)
	if r.URL.Path == "/api/pull" || r.URL.Path == "/api/create" { // both fetch what others made
		f.Fetched()
	}
}

// awaitSession holds a question to a session's model back until the session is back, if this server was just started.
// False when that took too long, and was said.
func (f *Front) awaitSession(w http.ResponseWriter, r *http.Request) bool {
	if !f.Models.Comeback.IsUnderWay() {
		return true
	}
	request, _ := look(r)
	name := request.model()
	if !sessionapi.IsModel(name) || f.Models.Comeback.Await(r.Context(), name, f.Patience) {
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

func (f *Front) refusePull(a asked) string {
	if !sessionapi.IsModel(a.model()) {
		return ""
	}
	return a.model() + " is a name for the model of a session, which is never pulled: join the session with its code, " +
		"ollama run --session CODE"
}

func (f *Front) refusePush(a asked) string {
	if !sessionapi.IsModel(a.model()) {
		return ""
	}
	return a.model() + " is a name for the model of a session, which can't be pushed: invite others to the session instead"
}

func (f *Front) refuseCopy(a asked) string {
	if sessionapi.IsModel(a.Source) {
		return noCopies(a.Source)
	}
	return reserved(a.Destination)
}

func (f *Front) refuseAlias(a asked) string {
	if sessionapi.IsModel(a.Target) {
		return noCopies(a.Target)
	}
	return reserved(a.Alias)
}

func (f *Front) refuseCreate(a asked) string {
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
func (f *Front) refuseDelete(a asked) string {
	if !sessionapi.IsModel(a.model()) {
		return ""
	}
	session := f.Models.Called(a.model())
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
