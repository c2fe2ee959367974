package sidecar

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kafila/ollama/internal/env"
)

func TestFindProgram_whenNamed_isThatOne(t *testing.T) {
	t.Setenv(env.Sidecar, os.Args[0])
	if found, err := findProgram(); err != nil || found[0] != os.Args[0] {
		t.Errorf("%v, %v", found, err)
	}
	t.Setenv(env.Sidecar, "/nowhere/kafila-sidecar")
	if _, err := findProgram(); err == nil || !strings.Contains(err.Error(), "/nowhere/kafila-sidecar") {
		t.Errorf("%v", err)
	}
}

func TestCandidates_beginBesideUs(t *testing.T) {
	beside := filepath.Dir(os.Args[0])
	found := candidates()
	if len(found) != 3 || filepath.Dir(found[0]) != beside || found[1] != "kafila-sidecar" {
		t.Errorf("%v, and not first in %s", found, beside)
	}
}

func TestFindProgram_whenOnlyAPythonHasIt_runsItsPackage(t *testing.T) {
	folder := t.TempDir()
	python := filepath.Join(folder, "python3")
	t.Setenv(env.Sidecar, "")
	t.Setenv("PATH", folder)
	for answer, want := range map[string][]string{
		`case "$*" in *'"kafila_sidecar"'*) exit 0; esac; exit 1`: {python, "-P", "-m", "kafila_sidecar"},
		"exit 1": nil,
	} {
		if err := os.WriteFile(python, []byte("#!/bin/sh\n"+answer+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if found, err := findProgram(); !slices.Equal(found, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v, %v", answer, found, err)
		}
	}
}
