package home

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kafila/ollama/internal/env"
)

func TestKeepRendezvous_keepsAnAddressHoweverItIsPasted(t *testing.T) {
	const pin = "#mcwqzspzi5esea64axpg"
	for said, want := range map[string]string{
		"rendezvous.example.org:7770":                    "rendezvous.example.org:7770",
		" 192.0.2.7:7770" + pin + "\n":                   "192.0.2.7:7770" + pin,
		"KAFILA_RENDEZVOUS=[2001:db8::1]:7770" + pin:     "[2001:db8::1]:7770" + pin,
		"grpc+insecure://127.0.0.1:7770":                 "grpc+insecure://127.0.0.1:7770",
		"KAFILA_RENDEZVOUS=grpc+insecure://10.0.0.2:777": "grpc+insecure://10.0.0.2:777",
	} {
		t.Setenv(env.Home, filepath.Join(t.TempDir(), "new"))
		if got, err := KeepRendezvous(said); err != nil || got != want {
			t.Errorf("%q: %s, %v", said, got, err)
		}
		if kept, err := Rendezvous(); err != nil || kept != want {
			t.Errorf("%q: kept %s, %v", said, kept, err)
		}
		if err := ForgetRendezvous(); err != nil {
			t.Error(err)
		}
		if kept, err := Rendezvous(); err != nil || kept != "" {
			t.Errorf("%q: still %s, %v", said, kept, err)
		}
	}
}

func TestKeepRendezvous_whenItIsNoAddress_keepsTheOneBefore(t *testing.T) {
	t.Setenv(env.Home, t.TempDir())
	if _, err := KeepRendezvous("192.0.2.7:7770"); err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"", "host", "host:", "host:7770#short", "a b:1", "http://host:1", "host:1\nKAFILA=2", "7-ocean-velvet-lamp"} {
		if _, err := KeepRendezvous(said); err == nil || !strings.Contains(err.Error(), "host:port#fingerprint") {
			t.Errorf("%q: %v", said, err)
		}
	}
	if kept, err := Rendezvous(); err != nil || kept != "192.0.2.7:7770" {
		t.Errorf("%s, %v", kept, err)
	}
}

func TestForgetRendezvous_whenThereIsNone_isDone(t *testing.T) {
	t.Setenv(env.Home, t.TempDir())
	if err := ForgetRendezvous(); err != nil {
		t.Error(err)
	}
}

func TestRendezvous_whenTheFileIsCutShort_isRefused(t *testing.T) {
	home := t.TempDir()
	t.Setenv(env.Home, home)
	if err := os.WriteFile(filepath.Join(home, rendezvousFile), []byte("192.0.2.7:77"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept, err := Rendezvous(); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("%s, %v", kept, err)
	}
}
