// Package logbook is the log that is kept in this user's Kafila folder: what the server and the sidecar say, one JSON
// object a line. It imports foreign and home.
package logbook

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kafila/ollama/internal/foreign"
	"kafila/ollama/internal/home"
)

// The files of one writer: the present one, and old ones with a number, the latest of them 1.
const (
	serverFile       = "server.jsonl"
	sidecarFile      = "sidecar.jsonl"
	largestFileBytes = 4 << 20
	oldFiles         = 3
	longestLine      = 64 << 10
)

// Levels are the ones that there are, the least first.
var Levels = []string{"DEBUG", "INFO", "WARN", "ERROR"}

// An Entry is one line of the log.
type Entry struct {
	At        time.Time `json:"at"`
	Level     string    `json:"level"`
	From      string    `json:"from"`  // "server" or "sidecar"
	Where     string    `json:"where"` // the part that says it
	Said      string    `json:"said"`  // an event, then key=value
	Traceback string    `json:"traceback,omitempty"`
}

// IsAtLeast is true of a level, in whatever case, and of those above it.
func (e Entry) IsAtLeast(level string) bool {
	return slices.Index(Levels, e.Level) >= slices.Index(Levels, strings.ToUpper(level))
}

// Folder is where the log is kept.
func Folder() (string, error) {
	data, err := home.Folder()
	return filepath.Join(data, "logs"), err
}

// Read gives all that is kept in a folder, in the order in which it was said.
func Read(folder string) ([]Entry, error) {
	var all []Entry
	for _, name := range []string{serverFile, sidecarFile} {
		for number := oldFiles; number >= 0; number-- {
			entries, err := readFile(numbered(filepath.Join(folder, name), number))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			all = append(all, entries...)
		}
	}
	slices.SortStableFunc(all, func(one, other Entry) int { return one.At.Compare(other.At) })
	return all, nil
}

func readFile(path string) ([]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var entries []Entry
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		if entry, ok := parsed(lines.Bytes()); ok {
			entries = append(entries, entry)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, err
	}
	return entries, nil
}

// parsed reads a line; one that was cut short is none. What a terminal would obey is taken out.
func parsed(line []byte) (Entry, bool) {
	var entry Entry
	if json.Unmarshal(line, &entry) != nil || entry.At.IsZero() {
		return entry, false
	}
	entry.Level, entry.From, entry.Where = foreign.Line(entry.Level), foreign.Line(entry.From), foreign.Line(entry.Where)
	entry.Said, entry.Traceback = foreign.Line(entry.Said), foreign.Lines(entry.Traceback)
	return entry, true
}
