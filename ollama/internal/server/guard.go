package server

import (
	"crypto/subtle"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/ollama/ollama/envconfig"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/sessionapi"
)

// guard lets a request through to the session routes only if a person on this machine, or somebody with the token, can
// have meant it. The routes bypass stock's own checks, and they lend memory and start downloads, so they are stricter:
// a web page is never trusted, unless this very server delivered it. An empty token is none.
func guard(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sentence := refusal(r, token); sentence != "" {
			writeError(w, http.StatusForbidden, sentence)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, sessionapi.BodyLimitBytes)
		next.ServeHTTP(w, r)
	})
}

// refusal says why a request may not pass, or "".
func refusal(r *http.Request, token string) string {
	switch authorized := bearerMatches(r, token); {
	case !authorized && !fromHere(r):
		return "sessions are controlled on the machine itself: from elsewhere set " + env.Token + " on both sides"
	case !authorized && !ownHost(r.Host):
		return "the Host header does not name this machine"
	case !sameOrigin(r):
		return "web pages may not control sessions"
	case r.Method == http.MethodPost && !isJSON(r):
		return "the Content-Type must be application/json"
	}
	return ""
}

func bearerMatches(r *http.Request, token string) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(token)) == 1
}

// fromHere is true for loopback, and for this machine talking to an address of its own.
func fromHere(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	if remote.Addr().Unmap().IsLoopback() {
		return true
	}
	bound, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	local, err := netip.ParseAddrPort(bound.String())
	return err == nil && local.Addr().Unmap() == remote.Addr().Unmap()
}

// ownHost guards against DNS rebinding: a name that somebody else controls may resolve to this machine, an address or
// one of our own names may not.
func ownHost(host string) bool {
	name := strings.ToLower(hostName(host))
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}
	if own, err := os.Hostname(); err == nil {
		own = strings.ToLower(own)
		if name == own || name == own+".local" {
			return true
		}
	}
	return name != "" && name == strings.ToLower(envconfig.Host().Hostname())
}

func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// sameOrigin is true for programs, which send no such headers, and for pages of this very server.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host)
}

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
