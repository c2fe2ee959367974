package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// serviceHome is the home of somebody whose system has this program for each name, which says something.
func serviceHome(t *testing.T, programs map[string]string) string {
	t.Helper()
	home := t.TempDir()
	bin := filepath.Join(home, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("SUDO_USER", "")
	t.Setenv("PATH", bin)
	return home
}

func TestService_whenInstalledAndUninstalled_tellsEachStep(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the programs of this test are systemd's")
	}
	home := serviceHome(t, map[string]string{"systemctl": `case "$*" in *is-active*) echo active;; esac`})
	t.Setenv("KAFILA_NAME", "ada")
	unit := filepath.Join(home, ".config/systemd/user/kafila.service")
	for _, step := range []struct {
		typed, says string
		there       bool // afterwards
	}{
		{"status", "There is no systemd unit of this user: `ollama service install` makes one.", false},
		{"install", "The server runs as a systemd unit of this user: " + unit, true},
		{"status", "The systemd unit of this user runs: " + unit, true},
		{"uninstall", "The systemd unit of this user is stopped and removed. Models, weights and keys stay.", false},
		{"uninstall", "There is no systemd unit of this user.", false},
	} {
		if printed := output(t, "service "+step.typed); !strings.HasPrefix(printed, step.says) {
			t.Errorf("%s: %s", step.typed, printed)
		}
		settings, err := os.ReadFile(filepath.Join(home, ".config/kafila/environment"))
		if there := err == nil; there != step.there || there && !strings.Contains(string(settings), "KAFILA_NAME=\"ada\"\n") {
			t.Errorf("%s: %s, %v", step.typed, settings, err)
		}
	}
}

func TestService_whenItCantBeInstalled_saysWhy(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the programs of this test are systemd's")
	}
	for typed, want := range map[string]string{
		"service install":          "`systemctl --user daemon-reload` failed: this system has no systemctl",
		"service install --system": "sudo ollama service install --system",
		"service install now":      "usage: ollama service install [flags]",
	} {
		serviceHome(t, nil)
		root, err := newCLI()
		if err != nil {
			t.Fatal(err)
		}
		root.SetArgs(strings.Fields(typed))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", typed, err)
		}
	}
	if _, err := exec.LookPath("systemctl"); err == nil {
		t.Error("this test used the machine's own systemctl")
	}
}
