// Package page serves the page on which a session is seen and run: files that hold nothing private. What they show they
// ask of /api/session, with the token of the server's owner.
package page

import (
	"embed"
	"io/fs"
	"net/http"
)

//go:embed static
var files embed.FS

// policy lets the page load its own files and ask its own server, and nobody frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves /session and what is below it.
func Handler() http.Handler {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the name above is embedded
	}
	mux := http.NewServeMux()
	below := http.StripPrefix("/session/", http.FileServerFS(static))
	mux.HandleFunc("GET /session", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, static, "page.html")
	})
	mux.HandleFunc("GET /session/{$}", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/session", http.StatusMovedPermanently)
	})
	mux.Handle("GET /session/", below)
	return safely(mux)
}

// safely says to browsers what the page may do. The files change with the server, so they are asked for anew.
func safely(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
