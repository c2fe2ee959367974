// Package sessionapi holds what both ends of /api/session share: states, names, and lines of JSON. It imports only pb.
package sessionapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ollama/ollama/types/model"

	"kafila/ollama/pb"
)

// The states of a session that this side acts on.
const (
	Linking    = "linking"    // members find their ways to one another, or the host chooses a plan
	Fetching   = "fetching"   // members fetch and load their parts
	Ready      = "ready"      // its model answers
	Replanning = "replanning" // it was ready, and will be
	Sleeping   = "sleeping"   // this machine is away from it and comes back by itself: what is asked waits
	Closed     = "closed"     // the last one
)

// ModelPrefix begins the name of every session's model; its host is no registry, so that nothing is ever pulled.
const ModelPrefix = "kafila/session/"

// IsModel is true of the names that only sessions' models have, however they are written: stock folds cases, and knows a
// scheme before the host.
func IsModel(name string) bool {
	parsed, prefix := model.ParseName(strings.TrimSpace(name)), model.ParseName(ModelPrefix+"any")
	return strings.EqualFold(parsed.Host, prefix.Host) && strings.EqualFold(parsed.Namespace, prefix.Namespace)
}

// SameModel is true of two names that stock takes for one.
func SameModel(one, other string) bool {
	return model.ParseName(strings.TrimSpace(one)).EqualFold(model.ParseName(strings.TrimSpace(other)))
}

// IsChoosing is true on the host while the person here looks at the plan, and nothing is fetched.
func IsChoosing(session *pb.Session) bool {
	return session.Self == session.Host && slices.ContainsFunc(session.Members, func(member *pb.Member) bool {
		return member.Name == session.Self && member.Doing == "choosing"
	})
}

// BodyLimitBytes is far above any request, and any error that answers one.
const BodyLimitBytes = 1 << 20

// Title is what people call a session: its code where it is known, without the rendezvous' address, else its id.
func Title(session *pb.Session) string {
	if session.Code != "" {
		return spoken(session.Code)
	}
	return session.Id
}

// IsCalled is true if a person may mean this session by the name: by its id, its code with or without the rendezvous'
// address, or the code's number.
func IsCalled(session *pb.Session, name string) bool {
	number, _, _ := strings.Cut(session.Code, "-")
	return name != "" && (name == session.Id || name == number || spoken(name) == spoken(session.Code))
}

// spoken is the part of a code that is read aloud.
func spoken(code string) string {
	words, _, _ := strings.Cut(code, "@")
	return words
}

// Write writes one message as one line.
func Write(w io.Writer, message proto.Message) {
	line, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	if err != nil {
		slog.Debug("session_answer_not_sent", "error", err)
	}
}

// A failure is Ollama's own error object.
type failure struct {
	Error string `json:"error"`
}

// WriteError writes a sentence as Ollama's own error object.
func WriteError(w io.Writer, sentence string) {
	if err := json.NewEncoder(w).Encode(failure{sentence}); err != nil {
		slog.Debug("session_error_not_sent", "error", err)
	}
}

// ErrorIn returns the sentence of an Ollama error object, or "".
func ErrorIn(body []byte) string {
	var failed failure
	if err := json.Unmarshal(body, &failed); err != nil {
		return ""
	}
	return strings.TrimSpace(failed.Error)
}
