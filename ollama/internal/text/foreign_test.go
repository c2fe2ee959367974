package text_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

// told is every text that people get, by the function that makes it, of messages that came from a server.
var told = map[string]func(c courier) []string{
	"Status":   func(c courier) []string { return []string{text.Status(c.session(), 0), text.Status(c.session(), 60)} },
	"Sessions": func(c courier) []string { return []string{text.Sessions([]*pb.Session{c.session(), c.session()})} },
	"Changes": func(c courier) []string {
		return append(text.Changes(nil, c.session()), text.Changes(c.session(), c.session())...)
	},
	"Moves":      func(c courier) []string { return text.Moves(c.session(), c.session()) },
	"Doing":      func(c courier) []string { return []string{text.Doing(c.session())} },
	"Terms":      func(c courier) []string { return []string{text.Terms(bring(c, &pb.Offer{}))} },
	"Joining":    func(c courier) []string { return []string{text.Joining(c.session().Joining)} },
	"Invitation": func(c courier) []string { return []string{text.Invitation(c.session(), 80)} },
	"WayIn":      func(c courier) []string { return []string{text.WayIn(c.session(), 80)} },
	"Notices":    func(c courier) []string { return text.Notices(c.session().Notices) },
	"Ready":      func(c courier) []string { return []string{text.Ready(c.session())} },
	"Plan": func(c courier) []string {
		plan, err := text.Plan(bring(c, &pb.PlanReply{}), 80)
		if err != nil {
			plan = err.Error()
		}
		return []string{plan}
	},
	"Trace": func(c courier) []string {
		var said []string
		for _, record := range bring(c, &pb.TracesReply{}).RecordsJson {
			told, err := text.Trace(record)
			if err != nil {
				told = err.Error()
			}
			said = append(said, told)
		}
		return said
	},
	"Division": func(c courier) []string {
		division, err := text.Division(bring(c, &pb.PlanReply{}), 80)
		if err != nil {
			division = err.Error()
		}
		return []string{division}
	},
	"Models":  func(c courier) []string { return []string{text.Models(bring(c, &pb.ListModelsReply{}).Models)} },
	"Weights": func(c courier) []string { return []string{text.Weights(bring(c, &pb.ListWeightsReply{}), time.Now())} },
	"Removal": func(c courier) []string {
		return []string{text.Removal(bring(c, &pb.ListWeightsReply{}).Weights, time.Now())}
	},
	"Freed": func(c courier) []string { return []string{text.Freed(bring(c, &pb.FreedReply{}))} },
	"Left": func(c courier) []string {
		kept := bring(c, &pb.ListWeightsReply{}).Weights
		said := []string{text.Left(kept, c.session())}
		for _, one := range kept {
			said = append(said, text.Left(kept, &pb.Session{Revision: one.Revision}))
		}
		return said
	},
	"Replanning": func(c courier) []string { return []string{text.Replanning(c.session().Replanning)} },
	"ParseAge":   func(courier) []string { return nil }, // what a person types, quoted
	"ParseBytes": func(courier) []string { return nil }, // what a person types, quoted
	"Divisions":  func(courier) []string { return nil }, // no text: it goes back to the server that it came from
}

func TestText_whateverTheServerSays_holdsNothingThatCommandsATerminal(t *testing.T) {
	c := newCourier(t)
	for name, of := range told {
		for range 150 {
			for _, said := range of(c) {
				if i := strings.IndexFunc(said, commands); i >= 0 {
					t.Fatalf("%s: %q", name, said[max(0, i-40):])
				}
			}
		}
	}
}

func TestText_everyFunctionIsToldOfAbove(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range parsed.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if ok && function.Recv == nil && function.Name.IsExported() && !strings.HasSuffix(file, "_test.go") {
				exported = append(exported, function.Name.Name)
			}
		}
	}
	slices.Sort(exported)
	if known := slices.Sorted(maps.Keys(told)); !slices.Equal(exported, known) {
		t.Errorf("%v, but this test knows %v", exported, known)
	}
}

// commands is true of every character that a terminal may act on, but for the end of a line.
func commands(r rune) bool {
	return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// A courier brings messages whose every field is random and hostile, as the command line gets them.
type courier struct {
	t      *testing.T
	random *rand.Rand
	client *control.Client
	next   *proto.Message
}

func newCourier(t *testing.T) courier {
	c := courier{t: t, random: rand.New(rand.NewPCG(11, 13)), next: new(proto.Message)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sessionapi.Write(w, *c.next) }))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.client = control.New(address, "")
	return c
}

func (c courier) session() *pb.Session { return bring(c, &pb.Session{}) }

func bring[M proto.Message](c courier, message M) M {
	c.t.Helper()
	sent := message.ProtoReflect().New().Interface()
	c.fill(sent.ProtoReflect())
	*c.next = sent
	if err := c.client.Get(c.t.Context(), "any", nil, message); err != nil {
		c.t.Fatal(err)
	}
	return message
}

func (c courier) fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		switch {
		case field.IsMap():
			for range c.random.IntN(3) {
				m.Mutable(field).Map().Set(c.value(field.MapKey(), field, nil).MapKey(), c.value(field.MapValue(), field, nil))
			}
		case field.IsList():
			for range c.random.IntN(4) {
				m.Mutable(field).List().Append(c.value(field, field, m.NewField(field).List().NewElement))
			}
		default:
			m.Set(field, c.value(field, field, func() protoreflect.Value { return m.NewField(field) }))
		}
	}
}

// value is one of a field's kind; of names some are states that mean something.
func (c courier) value(field, named protoreflect.FieldDescriptor, empty func() protoreflect.Value) protoreflect.Value {
	switch field.Kind() {
	case protoreflect.MessageKind:
		value := empty()
		c.fill(value.Message())
		return value
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(c.text(string(named.Name())))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(c.random.IntN(2) == 0)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(c.random.Uint32N(100))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(c.random.Uint64N(1e12))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(c.random.Float64())
	}
	c.t.Fatalf("%s is of a kind that this test doesn't know", field.FullName())
	return protoreflect.Value{}
}

func (c courier) text(field string) string {
	states := []string{sessionapi.Ready, sessionapi.Replanning, sessionapi.Closed, "forming"}
	switch {
	case strings.HasSuffix(field, "_json"):
		written, err := json.Marshal(c.plan())
		if err != nil {
			c.t.Fatal(err)
		}
		return string(written)
	case field == "state" && c.random.IntN(4) > 0:
		return states[c.random.IntN(len(states))]
	}
	return c.hostile()
}

// plan is a plan and a problem at once, with every text hostile.
func (c courier) plan() map[string]any {
	say := c.hostile
	stage := map[string]any{"member": say(), "start": 0, "end": 3, "cost_s": 0.1, "resident_bytes": 1e9}
	return map[string]any{
		"admitted": c.random.IntN(3) > 0, "reason": say(), "suggestions": []string{say(), say()}, "tier": say(), "search": say(),
		"head": say(), "stages": []any{stage}, "hops": []any{map[string]any{"to": say(), "path": say()}},
		"tokens_per_s_one_user": 3.0, "idle": []any{map[string]any{"member": say(), "why": say()}}, "notes": []string{say()},
		"strategy": say(), "objective": say(), "members": []any{map[string]any{"name": say(), "memory_bytes": 1e9}},
	}
}

func (c courier) hostile() string {
	words := []string{"\x1b[2J", "\x1b]0;x\x07", "\n", "\r", "\t", "\u009b31m", "\u202e", "\u200b", "\u2028", "\x7f", "\x00", "mini", "7"}
	var said strings.Builder
	for range c.random.IntN(6) {
		said.WriteString(words[c.random.IntN(len(words))])
	}
	return said.String()
}
