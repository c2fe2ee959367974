package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/types/errtypes"

	"kafila/ollama/internal/fake"
)

// said is what a conversation with a server that answers so got and told, as stock's prompt asks.
func said(t *testing.T, model string, messages []api.Message, answers http.HandlerFunc) (got, told string, err error) {
	t.Helper()
	server := httptest.NewServer(answers)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var tells bytes.Buffer
	client := api.NewClient(address, &http.Client{Transport: conversation{http.DefaultTransport, &tells}})
	err = client.Chat(t.Context(), &api.ChatRequest{Model: model, Messages: messages}, func(r api.ChatResponse) error {
		got += r.Message.Content
		return nil
	})
	return got, tells.String(), err
}

func writes(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
}

func TestConversation_whenThereIsNoAnswer_isBrokenOffAndSaysWhy(t *testing.T) {
	const begun = `{"message":{"role":"assistant","content":"Par"}}` + "\n"
	for name, row := range map[string]struct {
		model  string
		server http.HandlerFunc
		got    string
		told   string // "" where nothing is told
		fails  string // "" for no error, "cut" for what stock's prompt takes for Ctrl-C
	}{
		"refused":            {fake.ModelName, writes(503, `{"error":"mini was lost"}`), "", "mini was lost", "cut"},
		"refused, no words":  {fake.ModelName, writes(502, "gateway"), "", "502", "cut"},
		"fails midway":       {fake.ModelName, writes(200, begun+`{"error":"mini was lost"}`+"\n"), "Par", "mini was lost", ""},
		"commands terminals": {fake.ModelName, writes(200, `{"error":"\u001b[2Jmini"}`), "", "[2Jmini", ""},
		"answers":            {fake.ModelName, writes(200, begun+`{"message":{"content":"is"},"done":true}`+"\n"), "Paris", "", ""},
		"of stock":           {"qwen3", writes(500, `{"error":"no memory"}`), "", "", "no memory"},
		"of stock, midway":   {"qwen3", writes(200, begun+`{"error":"no memory"}`), "Par", "", "no memory"},
	} {
		got, told, err := said(t, row.model, nil, row.server)
		if got != row.got || strings.Contains(told, "\x1b[2J") || !strings.Contains(told, row.told) || (row.told == "") != (told == "") {
			t.Errorf("%s: got %q, told %q", name, got, told)
		}
		switch {
		case row.fails == "cut" && !errors.Is(err, context.Canceled), row.fails == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case row.fails != "" && row.fails != "cut" && (err == nil || !strings.Contains(err.Error(), row.fails)):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestConversation_whenTheServerIsGone_isBrokenOff(t *testing.T) {
	server := httptest.NewServer(writes(200, ""))
	server.Close()
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var tells bytes.Buffer
	client := api.NewClient(address, &http.Client{Transport: conversation{http.DefaultTransport, &tells}})
	err = client.Chat(t.Context(), &api.ChatRequest{Model: fake.ModelName}, func(api.ChatResponse) error { return nil })
	if !errors.Is(err, context.Canceled) || !strings.Contains(tells.String(), "can't be asked") {
		t.Errorf("%v, %s", err, tells.String())
	}
}

func TestConversation_afterAnswersThatWereBrokenOff_speaksInTurns(t *testing.T) {
	person := func(text string) api.Message { return api.Message{Role: "user", Content: text} }
	model := func(text string) api.Message { return api.Message{Role: "assistant", Content: text} }
	picture := api.Message{Role: "user", Content: "look", Images: []api.ImageData{[]byte("x")}}
	for name, row := range map[string]struct {
		model    string
		messages []api.Message
		want     []string
	}{
		"in turns":      {fake.ModelName, []api.Message{person("a"), model("b"), person("c")}, []string{"user a", "assistant b", "user c"}},
		"not answered":  {fake.ModelName, []api.Message{person("a"), person("b"), person("c")}, []string{"user a\n\nb\n\nc"}},
		"empty answer":  {fake.ModelName, []api.Message{person("a"), model(""), person("c")}, []string{"user a\n\nc"}},
		"with pictures": {fake.ModelName, []api.Message{person("a"), picture}, []string{"user a", "user look"}},
		"of stock":      {"qwen3", []api.Message{person("a"), person("b")}, []string{"user a", "user b"}},
	} {
		var heard []string
		_, _, err := said(t, row.model, row.messages, func(w http.ResponseWriter, r *http.Request) {
			var chat api.ChatRequest
			if err := json.NewDecoder(r.Body).Decode(&chat); err != nil {
				t.Error(err)
			}
			for _, message := range chat.Messages {
				heard = append(heard, message.Role+" "+message.Content)
			}
			io.WriteString(w, `{"done":true}`)
		})
		if err != nil || !slices.Equal(heard, row.want) {
			t.Errorf("%s: %q, %v", name, heard, err)
		}
	}
}

func TestConversation_whenASessionsModelIsSaved_saysWhyNotAndGoesOn(t *testing.T) {
	server := httptest.NewServer(writes(403, `{"error":"it stands for the model of a session"}`))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for from, goesOn := range map[string]bool{fake.ModelName: true, "qwen3": false} {
		var tells bytes.Buffer
		client := api.NewClient(address, &http.Client{Transport: conversation{http.DefaultTransport, &tells}})
		err := client.Create(t.Context(), &api.CreateRequest{Model: "mine", From: from}, func(api.ProgressResponse) error { return nil })
		if err == nil || strings.Contains(err.Error(), errtypes.InvalidModelNameErrMsg) != goesOn || (tells.Len() > 0) != goesOn {
			t.Errorf("%s: %v, %s", from, err, tells.String())
		}
	}
}
