package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/qr"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/pb"
)

// callTimeout bounds a control call; the sidecar's own deadlines are shorter.
const callTimeout = 120 * time.Second

// A method is one unary call of the sidecar's client.
type method[Q, A proto.Message] func(context.Context, Q, ...grpc.CallOption) (A, error)

// A Sidecar is what the routes need of one: to know whether it answers, and to call it.
type Sidecar interface {
	Await(ctx context.Context) error
	Client() pb.SidecarClient
}

// Routes are the control routes below /api/session/: the messages of sidecar.proto as JSON, with the field names of
// that file. status and watch take `?session=`. /metrics is for Prometheus. They are for those whom access lets in.
func Routes(s Sidecar, models *SessionModels, access Access) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /api/session/create", unary(s, followed(models, s.Client().CreateSession)))
	mux.Handle("POST /api/session/open", unary(s, s.Client().OpenSession))
	mux.Handle("POST /api/session/join", unary(s, followed(models, s.Client().JoinSession)))
	mux.Handle("POST /api/session/start", unary(s, followed(models, s.Client().StartSession)))
	mux.Handle("POST /api/session/choose", unary(s, s.Client().ChoosePlan))
	mux.Handle("POST /api/session/code", unary(s, s.Client().NewCode))
	mux.Handle("POST /api/session/lock", unary(s, s.Client().Lock))
	mux.Handle("POST /api/session/kick", unary(s, s.Client().Kick))
	mux.Handle("POST /api/session/replan", unary(s, s.Client().Replan))
	mux.Handle("POST /api/session/replanning", unary(s, s.Client().SetReplanning))
	mux.Handle("POST /api/session/leave", unary(s, s.Client().LeaveSession))
	mux.Handle("POST /api/session/plan", unary(s, s.Client().Plan))
	mux.Handle("POST /api/session/doctor", unary(s, s.Client().Doctor))
	mux.Handle("GET /api/session/list", listing(s, s.Client().ListSessions))
	mux.Handle("GET /api/session/models", listing(s, s.Client().ListModels))
	mux.Handle("GET /api/session/weights", listing(s, s.Client().ListWeights))
	mux.Handle("DELETE /api/session/weights", unary(s, s.Client().RemoveWeights))
	mux.Handle("POST /api/session/weights/prune", unary(s, s.Client().PruneWeights))
	mux.Handle("POST /api/session/traces", unary(s, s.Client().Traces))
	mux.Handle("GET /api/session/status", current(s, models))
	mux.Handle("GET /api/session/watch", watch(s, models))
	mux.HandleFunc("POST /api/session/qr", draw)
	mux.HandleFunc("GET /metrics", numbers(s))
	mux.HandleFunc("/api/session/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "this server has no "+r.Method+" "+r.URL.Path+
			": if it is older than the `ollama` command, start it anew")
	})
	return guard(access, mux)
}

// followed is a call after which models look after the session that it gives.
func followed[Q proto.Message](models *SessionModels, call method[Q, *pb.Session]) method[Q, *pb.Session] {
	return func(ctx context.Context, request Q, options ...grpc.CallOption) (*pb.Session, error) {
		session, err := call(ctx, request, options...)
		if err == nil {
			models.follow(session.Id)
		}
		return session, err
	}
}

// unary is a route that is one call: the body is the request, the answer the reply.
func unary[Q, A proto.Message](s Sidecar, call method[Q, A]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request := empty[Q]()
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = protojson.Unmarshal(body, request)
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, malformed(err))
			return
		}
		respond(s, w, r, func(ctx context.Context) (proto.Message, error) { return call(ctx, request) })
	}
}

func malformed(err error) string {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return "the request is too large for a session route"
	}
	reason := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	return "the request is not valid: " + reason
}

// listing is a route that is one call to which nothing has to be said.
func listing[Q, A proto.Message](s Sidecar, call method[Q, A]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		respond(s, w, r, func(ctx context.Context) (proto.Message, error) { return call(ctx, empty[Q]()) })
	}
}

func empty[M proto.Message]() M {
	var none M
	return none.ProtoReflect().New().Interface().(M)
}

// current answers with the session as it is now: the first message of a watch.
func current(s Sidecar, models *SessionModels) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		respond(s, w, r, func(ctx context.Context) (proto.Message, error) {
			stream, err := s.Client().WatchSession(ctx, sessionNamed(r))
			if err != nil {
				return nil, err
			}
			session, err := stream.Recv()
			if err == nil {
				session.Limited = models.Known.Limited(session.Id)
			}
			return session, err
		})
	}
}

func sessionNamed(r *http.Request) *pb.SessionRequest {
	return &pb.SessionRequest{Session: r.URL.Query().Get("session")}
}

// metricsKind is Prometheus' text format.
const metricsKind = "text/plain; version=0.0.4; charset=utf-8"

// numbers answers with the sidecar's, as Prometheus reads them.
func numbers(s Sidecar) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		err := s.Await(ctx)
		var reply *pb.MetricsReply
		if err == nil {
			reply, err = s.Client().Metrics(ctx, &pb.MetricsRequest{})
		}
		if err != nil {
			code, sentence := sidecar.Explain(err)
			writeError(w, code, sentence)
			return
		}
		w.Header().Set("Content-Type", metricsKind)
		if _, err := io.WriteString(w, reply.Text); err != nil {
			slog.Debug("numbers_not_sent", "error", err)
		}
	}
}

// respond makes a call when the sidecar is up, and writes what comes of it.
func respond(s Sidecar, w http.ResponseWriter, r *http.Request, call func(context.Context) (proto.Message, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	err := s.Await(ctx)
	var reply proto.Message
	if err == nil {
		reply, err = call(ctx)
	}
	if err != nil {
		code, sentence := sidecar.Explain(err)
		writeError(w, code, sentence)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	sessionapi.Write(w, reply)
}

// watch streams a session's changes, one JSON object a line, until it closes: as server-sent events to who asks for
// those. The state `ready` is passed on once the session's model can be asked here.
func watch(s Sidecar, models *SessionModels) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		form := formFor(r)
		err := s.Await(r.Context())
		var stream grpc.ServerStreamingClient[pb.Session]
		if err == nil {
			stream, err = s.Client().WatchSession(r.Context(), sessionNamed(r))
		}
		for begun := false; ; begun = true {
			var session *pb.Session
			if err == nil {
				session, err = nextChange(r.Context(), stream, models)
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				endWatch(w, form, begun, err)
				return
			}
			if !begun {
				w.Header().Set("Content-Type", form.kind)
			}
			form.write(w, func() { sessionapi.Write(w, session) })
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	}
}

func nextChange(ctx context.Context, stream grpc.ServerStreamingClient[pb.Session], models *SessionModels) (*pb.Session, error) {
	session, err := stream.Recv()
	if err == nil && session.State == sessionapi.Ready {
		err = models.ensure(ctx, session)
	}
	return session, err
}

// endWatch tells an error: with its status if nothing was sent, else as a line of its own.
func endWatch(w http.ResponseWriter, form watchForm, begun bool, err error) {
	code, sentence := sidecar.Explain(err)
	if !begun {
		writeError(w, code, sentence)
		return
	}
	form.write(w, func() { sessionapi.WriteError(w, sentence) })
}

// A watchForm is how the lines of a watch are told apart.
type watchForm struct{ kind, before, after string }

var (
	asLines  = watchForm{kind: "application/x-ndjson"}
	asEvents = watchForm{kind: "text/event-stream", before: "data: ", after: "\n"}
)

func formFor(r *http.Request) watchForm {
	if strings.Contains(r.Header.Get("Accept"), asEvents.kind) {
		return asEvents
	}
	return asLines
}

// write has a line written in this form. An error is the client's, and ends the watch at the next flush.
func (form watchForm) write(w io.Writer, line func()) {
	_, _ = io.WriteString(w, form.before)
	line()
	_, _ = io.WriteString(w, form.after)
}

// draw answers with a text as the SVG of a QR code, such as a session's code for a telephone.
func draw(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Text string }
	err := json.NewDecoder(r.Body).Decode(&asked)
	if err != nil {
		writeError(w, http.StatusBadRequest, malformed(err))
		return
	}
	drawn, err := qr.SVG(asked.Text)
	if err != nil {
		writeError(w, http.StatusBadRequest, "that is too long for a QR code")
		return
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	if _, err := io.WriteString(w, drawn); err != nil {
		slog.Debug("code_not_sent", "error", err)
	}
}

// writeError answers with Ollama's own error object.
func writeError(w http.ResponseWriter, code int, sentence string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	sessionapi.WriteError(w, sentence)
}
