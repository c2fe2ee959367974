package headway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	lineOfStock = `{"message":{"content":"{\"kafila_headway\":{}}"}}` + "\n"
	refusal     = `{"error":"mini was lost"}`
)

// What is read of it at second would be an update, were it a line.
var longLine = strings.Repeat("a", bufio.NewReader(nil).Size()) + string(half.Line()) + lineOfStock

var half = Update{Doing: Reading, Tokens: 512, Of: 1024}

// answered is what a client gets of a server that says these updates and then has stock answer, and what its terminal shows.
func answered(t *testing.T, updates []Update, stock http.HandlerFunc, patience time.Duration) (status int, got, shown string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(Header) == "" {
			t.Error("nobody asks for updates")
		}
		to := NewWriter(w, time.Hour)
		defer to.Close()
		for _, update := range updates {
			to.Tell(update)
		}
		stock(to, r)
	}))
	defer server.Close()
	var terminal bytes.Buffer
	client := &http.Client{Transport: Following{http.DefaultTransport, &terminal, patience}}
	response, err := client.Post(server.URL+"/api/chat", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(body), terminal.String()
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func TestUpdates_whenAPersonWaits_areShownBelowTheSpinnerAndGoneWithTheFirstLine(t *testing.T) {
	for name, row := range map[string]struct {
		updates  []Update
		stock    http.HandlerFunc
		patience time.Duration
		status   int
		shown    string // "" for nothing at all
	}{
		"reads":               {[]Update{half}, says(200, lineOfStock+lineOfStock), 0, 200, "512 of 1024 tokens"},
		"waits, then reads":   {[]Update{{Doing: Waiting}, half}, says(200, lineOfStock), 0, 200, "waiting for its turn"},
		"is interrupted":      {[]Update{{Doing: Interrupted}}, says(200, lineOfStock), 0, 200, "the ring"},
		"fails after that":    {[]Update{half}, says(503, refusal), 0, 200, "512 of 1024 tokens"},
		"quick":               {[]Update{half}, says(200, lineOfStock), time.Hour, 200, ""},
		"nothing to tell":     {nil, says(200, lineOfStock), 0, 200, ""},
		"nothing but refused": {nil, says(404, refusal), 0, 404, ""},
		"says a long line":    {[]Update{half}, says(200, longLine), 0, 200, "512 of 1024 tokens"},
		"more than there is":  {[]Update{{Reading, math.MaxUint32, 3}}, says(200, lineOfStock), 0, 200, "3 of 3 tokens"},
		"of another version":  {[]Update{{Doing: "dreaming"}, {Doing: Reading}}, says(200, lineOfStock), 0, 200, "waiting"},
	} {
		status, got, shown := answered(t, row.updates, row.stock, row.patience)
		recorded := httptest.NewRecorder()
		row.stock(recorded, nil)
		if status != row.status || got != recorded.Body.String() {
			t.Errorf("%s: %d, %q", name, status, got)
		}
		if !strings.Contains(shown, row.shown) || (row.shown == "") != (shown == "") {
			t.Errorf("%s: shown %q", name, shown)
		}
		if shown != "" && !strings.HasSuffix(shown, lineBelow+lineAbove) {
			t.Errorf("%s: left %q", name, shown)
		}
	}
}

// written hears what is drawn.
type written chan string

func (w written) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func TestUpdate_whenNoOtherFollowsIt_isShownOnceAPersonHasWaitedSoLong(t *testing.T) {
	drawn := make(written, 2)
	told := &followed{of: io.NopCloser(nil), tells: drawn, from: time.Now().Add(20 * time.Millisecond)}
	told.show(half)
	select {
	case shown := <-drawn:
		if time.Now().Before(told.from) || !strings.Contains(shown, "512 of 1024 tokens") {
			t.Errorf("%q", shown)
		}
	case <-time.After(10 * time.Second):
		t.Error("it never was")
	}
	told.Close()
	told.showNewest()
	if shown := <-drawn; shown != lineBelow+lineAbove || len(drawn) > 0 {
		t.Errorf("left %q", shown)
	}
}

func TestWriter_whenNothingComes_saysThatTheAnswerWaits_andNothingOnceItIsClosed(t *testing.T) {
	recorded := httptest.NewRecorder()
	w := NewWriter(recorded, time.Millisecond)
	for !w.hasTold() {
		time.Sleep(time.Millisecond)
	}
	w.Close()
	w.Tell(half)
	if recorded.Code != 200 || recorded.Body.String() != string(Update{Doing: Waiting}.Line()) {
		t.Errorf("%d %s", recorded.Code, recorded.Body)
	}
	begun := httptest.NewRecorder()
	w = NewWriter(begun, time.Hour)
	defer w.Close()
	w.WriteHeader(503)
	w.breakSilence()
	if begun.Code != 503 || begun.Body.Len() != 0 {
		t.Errorf("%d %s", begun.Code, begun.Body)
	}
}

func (w *Writer) hasTold() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.isUpdated
}

func TestUpdates_whenTheAnswerBreaksOff_areGone(t *testing.T) {
	broken := errors.New("broken")
	for name, row := range map[string]struct {
		before string
		begun  bool // there is an answer, as far as stock's client knows
	}{
		"before its first line": {string(half.Line()), false},
		"in its midst":          {lineOfStock + string(half.Line()), true},
		"before all":            {"", false},
	} {
		var terminal bytes.Buffer
		following := Following{tripper(func(*http.Request) (*http.Response, error) {
			body := io.MultiReader(strings.NewReader(row.before), errorReader{broken})
			return &http.Response{StatusCode: 200, Body: io.NopCloser(body)}, nil
		}), &terminal, 0}
		response, err := following.RoundTrip(httptest.NewRequest(http.MethodPost, "/api/generate", nil))
		if (err == nil) != row.begun {
			t.Errorf("%s: %v", name, err)
		}
		if row.begun {
			_, err = io.ReadAll(response.Body)
		}
		if !errors.Is(err, broken) || row.before != "" && !strings.HasSuffix(terminal.String(), lineBelow+lineAbove) {
			t.Errorf("%s: %v, %q", name, err, terminal.String())
		}
	}
}

func TestLine_isReadAsItWasSaid_andNoOtherIs(t *testing.T) {
	if u, ok := In(half.Line()); !ok || u != half {
		t.Errorf("%v, %t", u, ok)
	}
	others := []string{lineOfStock, refusal, "", `{"kafila_headway":`, fmt.Sprintf("%q", half.Line())}
	if slices.ContainsFunc(others, func(line string) bool { _, ok := In([]byte(line)); return ok }) {
		t.Error("another line is read as an update")
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

type errorReader struct{ error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.error }
