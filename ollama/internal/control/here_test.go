package control

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/home"
)

func TestIsHere(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "localhost": true, "0.0.0.0": true, "127.9.9.9": true,
		"192.0.2.7": false, "2001:db8::7": false, "": false, "no such name": false,
	} {
		if got := isHere(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 31337 1 0000000000000000
   1: 00000000:2CAB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31338 1 0000000000000000
   2: 0100007F:2CAC 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1002        0 31339 1 0000000000000000
   3: 00000000000000000000000001000000:2CAA 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 4
   4: short
`

func TestListeners_areWhoListensOnThePortAtAnyAddress(t *testing.T) {
	for port, want := range map[uint16][]int{11434: {1001, 1003}, 11435: {0}, 11436: nil, 54321: nil} {
		if got := listeners(table, port); !slices.Equal(got, want) {
			t.Errorf("%d: %v", port, got)
		}
	}
}

func TestHeldByAnother_whenItIsOurs_isFalse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if heldByAnother(uint16(listener.Addr().(*net.TCPAddr).Port)) {
		t.Error("our own listener is taken for somebody else's")
	}
}

func TestFromEnvironment_sendsTheOwnersTokenToThisMachineOnly(t *testing.T) {
	t.Setenv(env.Home, filepath.Join(t.TempDir(), "kafila"))
	token, err := home.KeepToken()
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct{ host, set, want string }{
		"here":                      {"127.0.0.1:1", "", token},
		"here, and one was set":     {"127.0.0.1:1", "set", "set"},
		"elsewhere":                 {"192.0.2.7:11434", "", ""},
		"elsewhere, and one is set": {"192.0.2.7:11434", "set", "set"},
	} {
		t.Setenv("OLLAMA_HOST", row.host)
		t.Setenv(env.Token, row.set)
		if got := FromEnvironment().token; got != row.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if err := os.Remove(filepath.Join(os.Getenv(env.Home), "token")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OLLAMA_HOST", "127.0.0.1:1")
	t.Setenv(env.Token, "")
	if got := FromEnvironment().token; got != "" {
		t.Errorf("without a file: %q", got)
	}
}
