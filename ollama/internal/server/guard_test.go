package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"kafila/ollama/internal/env"
)

func TestGuard(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const loopback, elsewhere = "127.0.0.1:5000", "192.0.2.7:5000"
	owner := func(headers ...string) map[string]string {
		all := map[string]string{"Authorization": "Bearer owner"}
		for i := 0; i < len(headers); i += 2 {
			all[headers[i]] = headers[i+1]
		}
		return all
	}
	for name, row := range map[string]struct {
		from, method, host string
		headers            map[string]string
		want               int
	}{
		"a program here":               {loopback, "GET", "127.0.0.1:11434", owner(), 200},
		"over IPv6":                    {"[::1]:5000", "GET", "[::1]:11434", owner(), 200},
		"by name":                      {loopback, "GET", "localhost:11434", owner(), 200},
		"by the machine's name":        {loopback, "GET", own + ":11434", owner(), 200},
		"a rebound name":               {loopback, "GET", "evil.example:11434", owner(), 403},
		"no host":                      {loopback, "GET", "", owner(), 403},
		"our own page":                 {loopback, "GET", "localhost:11434", owner("Origin", "http://localhost:11434"), 200},
		"another page here":            {loopback, "GET", "localhost:11434", owner("Origin", "http://localhost:3000"), 403},
		"a foreign page":               {loopback, "GET", "localhost:11434", owner("Origin", "https://evil.example"), 403},
		"a page without origin":        {loopback, "GET", "localhost:11434", owner("Origin", "null"), 403},
		"a foreign picture":            {loopback, "GET", "localhost:11434", owner("Sec-Fetch-Site", "cross-site"), 403},
		"a post":                       {loopback, "POST", "localhost:11434", owner("Content-Type", "application/json; charset=utf-8"), 200},
		"a form":                       {loopback, "POST", "localhost:11434", owner("Content-Type", "text/plain"), 403},
		"a post of unknown type":       {loopback, "POST", "localhost:11434", owner(), 403},
		"a removal":                    {loopback, "DELETE", "localhost:11434", owner("Content-Type", "application/json"), 200},
		"a removal of unknown type":    {loopback, "DELETE", "localhost:11434", owner(), 403},
		"another user's removal":       {loopback, "DELETE", "localhost:11434", map[string]string{"Content-Type": "application/json"}, 401},
		"elsewhere":                    {elsewhere, "GET", "192.0.2.1:11434", nil, 403},
		"elsewhere with the token":     {elsewhere, "GET", "gpu.lan:11434", map[string]string{"Authorization": "Bearer secret"}, 200},
		"elsewhere with a wrong token": {elsewhere, "GET", "192.0.2.1:11434", map[string]string{"Authorization": "Bearer secreT"}, 403},
		"the token on a foreign page":  {elsewhere, "GET", "gpu.lan:11434", map[string]string{"Authorization": "Bearer secret", "Origin": "https://evil.example"}, 403},
		"another user here":            {loopback, "GET", "localhost:11434", nil, 401},
		"another user's guess":         {loopback, "GET", "localhost:11434", map[string]string{"Authorization": "Bearer ownes"}, 401},
		"an empty token":               {loopback, "GET", "localhost:11434", map[string]string{"Authorization": "Bearer "}, 401},
		"another way to say it":        {loopback, "GET", "localhost:11434", map[string]string{"Authorization": "Basic owner"}, 401},
		"another user with the token":  {loopback, "GET", "localhost:11434", map[string]string{"Authorization": "Bearer secret"}, 200},
		"the owner's token elsewhere":  {elsewhere, "GET", "192.0.2.1:11434", owner(), 403},
	} {
		t.Run(name, func(t *testing.T) {
			if got := guarded(Access{Owner: "owner", Remote: "secret"}, row.from, row.method, row.host, row.headers); got.Code != row.want {
				t.Errorf("%d: %s", got.Code, got.Body)
			}
		})
	}
}

func TestGuard_withoutToken_letsNobodyInFromElsewhere(t *testing.T) {
	got := guarded(Access{Owner: "owner"}, "192.0.2.7:5000", "GET", "192.0.2.1:11434", map[string]string{"Authorization": "Bearer "})
	if got.Code != 403 || !strings.Contains(got.Body.String(), env.Token) {
		t.Errorf("%d: %s", got.Code, got.Body)
	}
}

func TestGuard_whenTheMachineTalksToItsOwnAddress_letsItIn(t *testing.T) {
	for from, want := range map[string]string{"192.0.2.1:5000": "", "192.0.2.7:5000": "elsewhere"} {
		request := httptest.NewRequest("GET", "/api/session/list", nil)
		request.RemoteAddr, request.Host = from, "192.0.2.1:11434"
		own := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 11434}
		request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey, own))
		request.Header.Set("Authorization", "Bearer owner")
		if _, got := (Access{Owner: "owner"}).refusal(request); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", from, got)
		}
	}
}

func TestGuard_whenTheTokenIsMissing_saysWhoseServerItIsAndWhatToDo(t *testing.T) {
	for want, access := range map[string]Access{
		ownName():          {Owner: "owner"},
		env.Token:          {Owner: "owner"},
		"disk is full":     {Lacking: errors.New("the disk is full")},
		"set " + env.Token: {Lacking: errors.New("the disk is full")},
	} {
		got := guarded(access, "127.0.0.1:5000", "GET", "127.0.0.1:11434", nil)
		if got.Code != 401 || !strings.Contains(got.Body.String(), want) || strings.Contains(got.Body.String(), `"owner"`) {
			t.Errorf("%s: %d %s", want, got.Code, got.Body)
		}
	}
}

// guarded sends a request through a guard with these tokens in front of a handler that answers 200.
func guarded(access Access, from, method, host string, headers map[string]string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "/api/session/list", strings.NewReader("{}"))
	request.RemoteAddr, request.Host = from, host
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	guard(access, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(answer, request)
	return answer
}
