package front

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/format"
	"github.com/ollama/ollama/openai"
	"github.com/ollama/ollama/types/model"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/pb"
)

// cardTimeout bounds how long `show` waits for the sidecar; without it less is told.
const cardTimeout = 5 * time.Second

// weightsFormat is what the weights of all sessions' models come in.
const weightsFormat = "safetensors"

// tellings are the routes in which stock tells of models what it reads in a stub model, or does not know.
var tellings = map[string]func(*Front, http.ResponseWriter, *http.Request){
	"POST /api/show": (*Front).tellShow,
	"GET /api/tags":  (*Front).tellTags,
	"GET /api/ps":    (*Front).tellRunning,
}

// An overhearing keeps what stock answers.
type overhearing struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (o *overhearing) Header() http.Header { return o.header }

func (o *overhearing) WriteHeader(status int) { o.status = status }

func (o *overhearing) Write(data []byte) (int, error) { return o.body.Write(data) }

// stockSays has stock answer, and gives its answer.
func (f *Front) stockSays(r *http.Request) *overhearing {
	o := &overhearing{header: http.Header{}, status: http.StatusOK}
	f.Stock.ServeHTTP(o, r)
	return o
}

// pass gives the answer to the client as it stands, or with the value in place of its body.
func (o *overhearing) pass(w http.ResponseWriter, value any) {
	body := o.body.Bytes()
	if value != nil {
		if changed, err := json.Marshal(value); err == nil {
			body = changed
			o.header.Del("Content-Length")
		}
	}
	for name, values := range o.header {
		w.Header()[name] = values
	}
	w.WriteHeader(o.status)
	if _, err := w.Write(body); err != nil {
		slog.Debug("answer_not_sent", "error", err)
	}
}

// put reads a good answer of stock's, has it changed, and gives it to the client.
func put[T any](o *overhearing, w http.ResponseWriter, change func(*T)) {
	var told T
	if o.status != http.StatusOK || json.Unmarshal(o.body.Bytes(), &told) != nil {
		o.pass(w, nil)
		return
	}
	change(&told)
	o.pass(w, told)
}

// amend is `put` for stock's lists, which stay as they stand where no session has a model.
func amend[T any](f *Front, w http.ResponseWriter, r *http.Request, change func(*T)) {
	o := f.stockSays(r)
	if !f.Models.Any() {
		o.pass(w, nil)
		return
	}
	put(o, w, change)
}

func (f *Front) tellTags(w http.ResponseWriter, r *http.Request) {
	amend(f, w, r, func(list *api.ListResponse) {
		for i := range list.Models {
			if session := f.Models.Called(list.Models[i].Name); session != nil {
				list.Models[i].Size = int64(session.Vehicle.WeightBytes)
				list.Models[i].Details = details(session.Vehicle)
			}
		}
	})
}

// tellRunning tells what a session's shard takes of this machine, and not what all machines hold together.
func (f *Front) tellRunning(w http.ResponseWriter, r *http.Request) {
	amend(f, w, r, func(list *api.ProcessResponse) {
		for i := range list.Models {
			one := &list.Models[i]
			session := f.Models.Called(one.Name)
			if session == nil {
				continue
			}
			one.Size, one.SizeVRAM = int64(f.Models.Holds(session.Id)), 0
			if onGPU(session) {
				one.SizeVRAM = one.Size
			}
			one.ContextLength = int(session.Vehicle.ContextLength)
			one.Details = details(session.Vehicle)
		}
	})
}

func (f *Front) tellShow(w http.ResponseWriter, r *http.Request) {
	request, tooLarge := look(r)
	session := f.Models.Called(request.model())
	if tooLarge || session == nil {
		f.Stock.ServeHTTP(w, r)
		return
	}
	put(f.stockSays(r), w, func(told *api.ShowResponse) { f.tellOf(r.Context(), session, told) })
}

// tellModel is /v1/models/NAME: stock's own route takes no name with slashes in it.
func (f *Front) tellModel(w http.ResponseWriter, r *http.Request, name string) {
	body, err := json.Marshal(api.ShowRequest{Model: name})
	if err != nil {
		f.Stock.ServeHTTP(w, r)
		return
	}
	show := r.Clone(r.Context())
	show.Method, show.URL.Path, show.URL.RawPath = http.MethodPost, "/api/show", ""
	show.Body, show.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	o := f.stockSays(show)
	var told api.ShowResponse
	if o.status != http.StatusOK || json.Unmarshal(o.body.Bytes(), &told) != nil {
		fail(w, r.URL.Path, envelope.Failure{Status: http.StatusNotFound, Sentence: fmt.Sprintf("model '%s' not found", name)})
		return
	}
	o.header.Set("Content-Type", "application/json") // as stock has it in this API
	o.pass(w, openai.ToModel(told, name))
}

func details(v *pb.StubModel) api.ModelDetails {
	return api.ModelDetails{
		Format:            weightsFormat,
		Family:            v.Architecture,
		Families:          []string{v.Architecture},
		ParameterSize:     format.HumanNumber(v.ParameterCount),
		QuantizationLevel: v.Quantization,
	}
}

// onGPU is whether this machine's own part is computed by one.
func onGPU(session *pb.Session) bool {
	for _, member := range session.Members {
		if member.Name == session.Self {
			return strings.HasPrefix(member.Device, "gpu")
		}
	}
	return false
}

// tellOf puts a session's model in place of the stub model in what stock shows.
func (f *Front) tellOf(ctx context.Context, session *pb.Session, told *api.ShowResponse) {
	v := session.Vehicle
	card := f.card(ctx, session.Id)
	told.Details = details(v)
	told.Template, told.License = card.GetTemplate(), card.GetLicense()
	told.ModelInfo = f.figures(session, card)
	told.Tensors = nil
	told.Modelfile = modelfile(v.Name, told.Parameters)
	if v.Insert && !slices.Contains(told.Capabilities, model.CapabilityInsert) {
		told.Capabilities = append(told.Capabilities, model.CapabilityInsert)
	}
}

// card asks the sidecar; nil where it can't say.
func (f *Front) card(ctx context.Context, id string) *pb.ModelCard {
	ctx, cancel := context.WithTimeout(ctx, cardTimeout)
	defer cancel()
	card, err := f.Sidecar.ShowModel(ctx, &pb.SessionRequest{Session: id})
	if err != nil {
		slog.Info("model_card_not_read", "session", id, "error", err)
		return nil
	}
	return card
}

// figures are by the names of model files. The context is the session's, which is what a request can have.
func (f *Front) figures(session *pb.Session, card *pb.ModelCard) map[string]any {
	v := session.Vehicle
	made := map[string]any{
		"general.architecture":               v.Architecture,
		"general.parameter_count":            v.ParameterCount,
		v.Architecture + ".context_length":   v.ContextLength,
		"kafila.session.members":             len(session.Members),
		"kafila.session.concurrency":         session.Concurrency,
		"kafila.session.bytes_here":          f.Models.Holds(session.Id),
		"kafila.session.bytes_in_all":        v.WeightBytes,
		"kafila.session.stages":              len(session.Stages),
		v.Architecture + ".embedding_length": v.EmbeddingLength,
	}
	for name, value := range card.GetInfo() {
		made[v.Architecture+"."+name] = value
	}
	for _, stage := range session.Stages {
		if stage.Member == session.Self {
			made["kafila.session.blocks_here"] = fmt.Sprintf("%d-%d", stage.Start, stage.End)
		}
	}
	return made
}

// modelfile is for reading only.
func modelfile(name, parameters string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# The model of a session: it comes by joining and goes by leaving, and no other is made from it.\n\nFROM %s\n", name)
	for _, line := range strings.Split(parameters, "\n") {
		if fields := strings.Fields(line); len(fields) == 2 {
			fmt.Fprintf(&text, "PARAMETER %s %s\n", fields[0], fields[1])
		}
	}
	return text.String()
}
