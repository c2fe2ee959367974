package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What of ours each room may import, its tests aside: the whole diagram of this folder.
var mayImport = map[string][]string{
	".":                   {"internal/background", "internal/called", "internal/cli", "internal/runner", "internal/server"},
	"internal/cli":        {"internal/called", "internal/control", "internal/env", "internal/foreign", "internal/headway", "internal/home", "internal/logbook", "internal/manual", "internal/qr", "internal/report", "internal/service", "internal/sessionapi", "internal/text", "internal/version", "pb"},
	"internal/server":     {"internal/env", "internal/envelope", "internal/front", "internal/home", "internal/known", "internal/logbook", "internal/page", "internal/qr", "internal/seal", "internal/sessionapi", "internal/sidecar", "internal/stub", "pb"},
	"internal/front":      {"internal/envelope", "internal/headway", "internal/known", "internal/seal", "internal/sessionapi", "internal/stub", "pb"},
	"internal/known":      {"internal/sessionapi", "pb"},
	"internal/runner":     {"internal/env", "internal/envelope", "internal/headway", "internal/seal", "internal/sidecar", "internal/stub", "pb"},
	"internal/control":    {"internal/env", "internal/foreign", "internal/home", "internal/sessionapi", "pb"},
	"internal/text":       {"internal/sessionapi", "pb"},
	"internal/sidecar":    {"internal/env", "internal/foreign", "internal/home", "pb"},
	"internal/logbook":    {"internal/foreign", "internal/home"},
	"internal/report":     {"internal/logbook", "internal/sessionapi", "pb"},
	"internal/headway":    {"pb"},
	"internal/page":       {},
	"internal/qr":         {},
	"internal/foreign":    {},
	"internal/home":       {"internal/env"},
	"internal/seal":       {},
	"internal/sessionapi": {"pb"},
	"internal/stub":       {"internal/seal", "pb"},
	"internal/envelope":   {},
	"internal/env":        {},
	"internal/called":     {},
	"internal/background": {},
	"internal/manual":     {},
	"internal/service":    {},
	"internal/version":    {},
	// for tests only
	"internal/fake":       {"pb"},
	"internal/servertest": {"internal/control", "internal/fake", "internal/seal", "internal/server", "internal/sidecar", "pb"},
}

func TestRooms_importOnlyWhatTheDiagramAllows(t *testing.T) {
	files, err := filepath.Glob("internal/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "main.go") {
		allowed, known := mayImport[filepath.Dir(file)]
		switch {
		case strings.HasSuffix(file, "_test.go"):
			continue
		case !known:
			t.Errorf("%s is in a new room: say here what that may import", file)
		}
		for _, path := range ourImports(t, file) {
			if !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", file, path)
			}
		}
	}
}

func TestRooms_sayWhatTheyAreFor(t *testing.T) {
	for room := range mayImport {
		files, err := filepath.Glob(filepath.Join(room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		said := slices.ContainsFunc(files, func(file string) bool {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
			return err == nil && parsed.Doc != nil
		})
		if !said {
			t.Errorf("%s is no room, or doesn't say what for", room)
		}
	}
}

// ourImports are the packages of this module that a file imports, as folders.
func ourImports(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for _, spec := range parsed.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		if folder, is := strings.CutPrefix(path, "kafila/ollama/"); is {
			ours = append(ours, folder)
		}
	}
	return ours
}
