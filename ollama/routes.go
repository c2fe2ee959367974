package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/pb"
)

// callTimeout bounds a control call; the sidecar's own deadlines are shorter.
const callTimeout = 120 * time.Second

// A method is one unary call of the sidecar's client.
type method[Q, A proto.Message] func(context.Context, Q, ...grpc.CallOption) (A, error)

// sessionRoutes are the control routes below /api/session/: the messages of sidecar.proto as JSON, with the field
// names of that file. status and watch take `?session=`.
func sessionRoutes(s *sidecar, models *sessionModels) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /api/session/create", unary(s, followed(models, s.client.CreateSession)))
	mux.Handle("POST /api/session/open", unary(s, s.client.OpenSession))
	mux.Handle("POST /api/session/join", unary(s, followed(models, s.client.JoinSession)))
	mux.Handle("POST /api/session/start", unary(s, followed(models, s.client.StartSession)))
	mux.Handle("POST /api/session/code", unary(s, s.client.NewCode))
	mux.Handle("POST /api/session/lock", unary(s, s.client.Lock))
	mux.Handle("POST /api/session/kick", unary(s, s.client.Kick))
	mux.Handle("POST /api/session/leave", unary(s, s.client.LeaveSession))
	mux.Handle("POST /api/session/plan", unary(s, s.client.Plan))
	mux.Handle("POST /api/session/doctor", unary(s, s.client.Doctor))
	mux.Handle("GET /api/session/list", list(s))
	mux.Handle("GET /api/session/status", current(s))
	mux.Handle("GET /api/session/watch", watch(s, models))
	mux.HandleFunc("/api/session/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, "this server has no "+r.Method+" "+r.URL.Path+
			": if it is older than the `ollama` command, start it anew")
	})
	return guard(mux)
}

// followed has the session models look after the session that a call gives.
func followed[Q proto.Message](models *sessionModels, call method[Q, *pb.Session]) method[Q, *pb.Session] {
	return func(ctx context.Context, request Q, options ...grpc.CallOption) (*pb.Session, error) {
		session, err := call(ctx, request, options...)
		if err == nil {
			models.follow(session.Id)
		}
		return session, err
	}
}

// unary is a route that is one call: the body is the request, the answer the reply.
func unary[Q, A proto.Message](s *sidecar, call method[Q, A]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var none Q
		request := none.ProtoReflect().New().Interface().(Q)
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

func list(s *sidecar) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		respond(s, w, r, func(ctx context.Context) (proto.Message, error) {
			return s.client.ListSessions(ctx, &pb.ListSessionsRequest{})
		})
	}
}

// current answers with the session as it is now: the first message of a watch.
func current(s *sidecar) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		respond(s, w, r, func(ctx context.Context) (proto.Message, error) {
			stream, err := s.client.WatchSession(ctx, sessionNamed(r))
			if err != nil {
				return nil, err
			}
			return stream.Recv()
		})
	}
}

func sessionNamed(r *http.Request) *pb.SessionRequest {
	return &pb.SessionRequest{Session: r.URL.Query().Get("session")}
}

// respond makes a call when the sidecar is up, and writes what comes of it.
func respond(s *sidecar, w http.ResponseWriter, r *http.Request, call func(context.Context) (proto.Message, error)) {
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	err := s.await(ctx)
	var reply proto.Message
	if err == nil {
		reply, err = call(ctx)
	}
	if err != nil {
		code, sentence := explain(err)
		writeError(w, code, sentence)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeMessage(w, reply)
}

// watch streams a session's changes, one JSON object a line, until it closes. The state `ready` is passed on once the
// session's model can be asked here.
func watch(s *sidecar, models *sessionModels) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := s.await(r.Context())
		var stream grpc.ServerStreamingClient[pb.Session]
		if err == nil {
			stream, err = s.client.WatchSession(r.Context(), sessionNamed(r))
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
				endWatch(w, begun, err)
				return
			}
			if !begun {
				w.Header().Set("Content-Type", "application/x-ndjson")
			}
			writeMessage(w, session)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	}
}

func nextChange(ctx context.Context, stream grpc.ServerStreamingClient[pb.Session], models *sessionModels) (*pb.Session, error) {
	session, err := stream.Recv()
	if err == nil && session.State == ready {
		err = models.ensure(ctx, session)
	}
	return session, err
}

// endWatch tells an error: with its status if nothing was sent, else as a line of its own.
func endWatch(w http.ResponseWriter, begun bool, err error) {
	code, sentence := explain(err)
	if !begun {
		writeError(w, code, sentence)
		return
	}
	writeJSON(w, map[string]string{"error": sentence})
}

// writeMessage writes one message as one line.
func writeMessage(w io.Writer, message proto.Message) {
	line, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	if err != nil {
		slog.Debug("session_answer_not_sent", "error", err)
	}
}
