package known

import (
	"testing"

	"kafila/ollama/pb"
)

func session(id string) *pb.Session {
	return &pb.Session{Id: id, Vehicle: &pb.StubModel{Name: "kafila/session/model:" + id, ContextLength: 64}}
}

func TestModels_whenRegisteredAndForgotten_areCalledByTheirNameInBetweenAlone(t *testing.T) {
	m := New()
	if m.Any() || m.Called("kafila/session/model:7") != nil {
		t.Error("a model is known that nobody registered")
	}
	m.Register(session("7"))
	for _, name := range []string{"kafila/session/model:7", "KAFILA/session/Model:7", "https://kafila/session/model:7"} {
		if found := m.Called(name); found == nil || found.Id != "7" {
			t.Errorf("%s is not found", name)
		}
	}
	m.Unregister("7")
	if m.Any() || m.Registered("7") != nil || m.Called("kafila/session/model:7") != nil {
		t.Error("it is known for good")
	}
}

func TestModels_hold_givesWhatAllOfThemTake(t *testing.T) {
	m := New()
	m.Hold("7", 5)
	if sum := m.Hold("8", 6); sum != 11 || m.Holds("7") != 5 {
		t.Errorf("%d in all, %d the first", sum, m.Holds("7"))
	}
	if sum := m.Hold("8", 0); sum != 5 {
		t.Errorf("%d in all once one is gone", sum)
	}
}

func TestModels_whenMoreContextIsAskedFor_tellTheMostUntilTheSessionIsOver(t *testing.T) {
	m := New()
	m.Register(session("7"))
	for _, tokens := range []int{64, 128, 96} {
		m.AsksContext(m.Registered("7"), tokens)
	}
	want := "a client asked for a context of 128 tokens (num_ctx) and gets the session's 64"
	if said := m.Limited("7"); len(said) != 1 || said[0] != want {
		t.Errorf("%q", said)
	}
	m.Unregister("7")
	m.Register(session("7"))
	if said := m.Limited("7"); said != nil {
		t.Errorf("a new session of the name is told of the former one's: %q", said)
	}
}
