package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"kafila/ollama/internal/fake"
	"kafila/ollama/pb"
)

type answering func(*http.Request) (*http.Response, error)

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

func TestPatience_tellsWhatIsWaitedFor_onceEach(t *testing.T) {
	reads, waits, lost := fake.ReadySession(), fake.ReadySession(), fake.ReadySession()
	reads.Activity = &pb.Activity{Answering: []*pb.Answering{{Member: reads.Self, Doing: "reading", PromptTokens: 2048}}}
	waits.Activity = &pb.Activity{Waiting: 1, Answering: []*pb.Answering{{Member: "mini", Doing: "answering"}, {Member: waits.Self, Doing: "waiting"}}}
	lost.State, lost.Doing = "replanning", "mini was lost: laptop takes over blocks 3–5"
	for name, row := range map[string]struct {
		seen  []*pb.Session
		begun bool
		after time.Duration
		want  []string
	}{
		"reads":        {[]*pb.Session{reads, reads}, false, 0, []string{"the prompt is read: 2048 tokens"}},
		"waits":        {[]*pb.Session{waits, reads}, false, 0, []string{"others are answered first", "the prompt is read"}},
		"lost":         {[]*pb.Session{lost, lost, fake.ReadySession()}, true, 0, []string{"[mini was lost: laptop takes over blocks 3–5]"}},
		"soon":         {[]*pb.Session{reads}, false, time.Hour, nil},
		"nothing":      {[]*pb.Session{fake.ReadySession()}, false, 0, nil},
		"begun, reads": {[]*pb.Session{reads}, true, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var told bytes.Buffer
			seen := make(chan struct{})
			body := io.NopCloser(strings.NewReader("word"))
			sees := patience{
				tells: &told, after: row.after,
				below: answering(func(*http.Request) (*http.Response, error) { return &http.Response{Body: body}, nil }),
				watch: func(ctx context.Context, model string, each func(*pb.Session) error) {
					<-seen
					for _, now := range row.seen {
						each(now)
					}
					seen <- struct{}{}
				},
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x/api/chat", strings.NewReader(`{"model":"`+fake.ModelName+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := sees.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			if row.begun {
				io.ReadAll(answer.Body)
			}
			seen <- struct{}{}
			<-seen
			answer.Body.Close()
			lines := strings.Count(told.String(), "\n") - strings.Count(told.String(), "\n[")
			if lines != len(row.want) {
				t.Errorf("%q", told.String())
			}
			for _, want := range row.want {
				if !strings.Contains(told.String(), want) {
					t.Errorf("%q", told.String())
				}
			}
		})
	}
}
