package server

import (
	"crypto/subtle"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"strings"

	"github.com/ollama/ollama/envconfig"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/sessionapi"
)

// An Access says by which tokens sessions may be controlled; an empty one is none.
type Access struct {
	Owner   string // in the owner's home: counts on this machine only
	Remote  string // KAFILA_TOKEN: counts from everywhere
	Lacking error  // why there is no token of the owner's
}

// guard lets a request through to the session routes only if the owner of this server, or somebody with its token, can
// have meant it. The routes bypass stock's own checks, they lend memory, start downloads and open files, and loopback
// is open to every user of the machine: so they are stricter. A web page is never trusted, unless this very server
// delivered it.
func guard(access Access, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code, sentence := access.refusal(r); sentence != "" {
			writeError(w, code, sentence)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, sessionapi.BodyLimitBytes)
		next.ServeHTTP(w, r)
	})
}

// refusal says why a request may not pass, with its status, or "".
func (a Access) refusal(r *http.Request) (int, string) {
	remote := bearerMatches(r, a.Remote)
	switch {
	case !remote && !fromHere(r):
		return http.StatusForbidden, "sessions are controlled on the machine itself: from elsewhere set " + env.Token + " on both sides"
	case !remote && !ownHost(r.Host):
		return http.StatusForbidden, "the Host header does not name this machine"
	case !sameOrigin(r):
		return http.StatusForbidden, "web pages may not control sessions"
	case changes(r) && !isJSON(r):
		return http.StatusForbidden, "the Content-Type must be application/json"
	case !remote && !bearerMatches(r, a.Owner):
		return http.StatusUnauthorized, a.whose()
	}
	return 0, ""
}

// whose tells somebody without token what to do.
func (a Access) whose() string {
	if a.Owner == "" {
		return fmt.Sprintf("the server could not leave a token for its owner's commands (%v): let it write there, or set %s for "+
			"it and for this command, and start it anew", a.Lacking, env.Token)
	}
	return fmt.Sprintf("the sessions of this server belong to %[1]s, who started it: run this as %[1]s, with the same %[2]s, or "+
		"set %[3]s to one value for the server and for this command", ownName(), env.Home, env.Token)
}

// ownName is this user's, or the number where it has no name.
func ownName() string {
	if own, err := user.Current(); err == nil && own.Username != "" {
		return own.Username
	}
	return fmt.Sprintf("user %d", os.Geteuid())
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

// changes is true of a request that does more than ask.
func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
