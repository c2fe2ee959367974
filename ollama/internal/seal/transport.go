package seal

import "net/http"

// Header carries a seal beside a request.
const Header = "Kafila-Seal"

// runnerPaths are all that stock's scheduler asks of a runner.
var runnerPaths = map[string]bool{"/health": true, "/load": true, "/completion": true, "/embedding": true}

// ToRunner seals a request of stock's scheduler to one of its runners: for its port alone, so that a program which gets
// hold of that port can use the seal for nothing else. To any other request it gives none.
func (k Key) ToRunner(r *http.Request) string {
	if r.URL.Scheme != "http" || r.URL.Hostname() != "127.0.0.1" || !runnerPaths[r.URL.Path] {
		return ""
	}
	return k.Of(Runner, r.URL.Port())
}

// ToStore seals a request of our own to the server, whatever it asks.
func (k Key) ToStore(*http.Request) string { return k.Of(Store) }

// A Transport adds to each request the seal that Seal gives it, if any.
type Transport struct {
	Seal func(*http.Request) string
	Next http.RoundTripper // nil: http.DefaultTransport
}

// RoundTrip leaves the request itself as it was.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if made := t.Seal(r); made != "" {
		r = r.Clone(r.Context())
		r.Header.Set(Header, made)
	}
	if t.Next != nil {
		return t.Next.RoundTrip(r)
	}
	return http.DefaultTransport.RoundTrip(r)
}
