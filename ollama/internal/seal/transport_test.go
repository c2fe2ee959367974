package seal

import (
	"net/http"
	"testing"
)

// recorded keeps the last request.
type recorded struct{ last *http.Request }

func (r *recorded) RoundTrip(request *http.Request) (*http.Response, error) {
	r.last = request
	return &http.Response{StatusCode: 200}, nil
}

func TestTransport_sealsRequestsToRunnersForTheirPortAndNoOther(t *testing.T) {
	key := New()
	for address, port := range map[string]string{
		"http://127.0.0.1:4711/completion":      "4711",
		"http://127.0.0.1:4712/health":          "4712",
		"http://127.0.0.1:4712/load":            "4712",
		"http://127.0.0.1:4712/embedding":       "4712",
		"http://127.0.0.1:11434/api/chat":       "",
		"http://192.0.2.7:4711/completion":      "",
		"http://127.0.0.1.example/completion":   "",
		"http://localhost:4711/completion":      "",
		"https://127.0.0.1:4711/completion":     "",
		"https://model.example.org/v2/manifest": "",
	} {
		next := &recorded{}
		asked, err := http.NewRequest(http.MethodPost, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (&Transport{Seal: key.ToRunner, Next: next}).RoundTrip(asked); err != nil {
			t.Fatal(err)
		}
		made := next.last.Header.Get(Header)
		if fits := key.Fits(made, Runner, port); fits != (port != "") || (port == "") != (made == "") {
			t.Errorf("%s: %q", address, made)
		}
		if len(asked.Header) != 0 {
			t.Errorf("%s: the caller's request was changed: %v", address, asked.Header)
		}
	}
}
