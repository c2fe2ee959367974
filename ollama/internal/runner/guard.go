package runner

import (
	"mime"
	"net"
	"net/http"

	"kafila/ollama/internal/seal"
)

// fromServerOnly lets only the server that started this runner ask it. Every user of the machine can reach its port, and
// every web page that is open on it; neither has the seal, which is for this port alone.
func fromServerOnly(key seal.Key, port string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !key.Fits(r.Header.Get(seal.Header), seal.Runner, port) || !asStockAsks(r, port) {
			http.Error(w, "only the server that started this runner may ask it", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// asStockAsks is true of what can't come from a web page.
func asStockAsks(r *http.Request, port string) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Host == net.JoinHostPort("127.0.0.1", port) && r.Header.Get("Origin") == "" &&
		(r.Method == http.MethodGet || err == nil && kind == "application/json")
}

// Foreign is said of a stub model that this run of the server didn't write. Nothing of what is asked goes anywhere.
const Foreign = "this model stands for a session, but this server did not make it: it came from elsewhere or is left over, " +
	"so nobody is asked; `ollama rm` removes it"

// refuser answers for such a model. It has to come up like any runner, or stock tells of a crash instead.
func refuser() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", (&proxy{}).health)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, Foreign, http.StatusForbidden) })
	return mux
}
