package logbook

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// lookEvery is how often files are looked at for what came.
const lookEvery = 250 * time.Millisecond

// Follow calls each for every entry that comes from now on, until ctx ends or each fails.
func Follow(ctx context.Context, folder string, each func(Entry) error) error {
	tails := []*tail{{path: filepath.Join(folder, serverFile)}, {path: filepath.Join(folder, sidecarFile)}}
	for _, t := range tails {
		if _, err := t.next(); err != nil { // what is there already
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
		var came []Entry
		for _, t := range tails {
			entries, err := t.next()
			if err != nil {
				return err
			}
			came = append(came, entries...)
		}
		slices.SortStableFunc(came, func(one, other Entry) int { return one.At.Compare(other.At) })
		for _, entry := range came {
			if err := each(entry); err != nil {
				return err
			}
		}
	}
}

// A tail is one file as far as it was read. A file that begins anew is read from its beginning, after the rest of the old
// one.
type tail struct {
	path string
	file *os.File // open as long as it is the present one
	rest []byte   // of a line whose end has not come
}

func (t *tail) next() ([]Entry, error) {
	entries, err := t.more()
	if err != nil || !t.isOld() {
		return entries, err
	}
	t.file.Close()
	t.file, t.rest = nil, nil
	fresh, err := t.more()
	return append(entries, fresh...), err
}

func (t *tail) more() ([]Entry, error) {
	if t.file == nil {
		file, err := os.Open(t.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		t.file = file
	}
	came, err := io.ReadAll(t.file)
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(append(t.rest, came...), []byte("\n"))
	t.rest = bytes.Clone(lines[len(lines)-1])
	var entries []Entry
	for _, line := range lines[:len(lines)-1] {
		if entry, ok := parsed(line); ok {
			entries = append(entries, entry)
		}
	}
	return entries, nil
}

// isOld is true of a file that is not the present one any more.
func (t *tail) isOld() bool {
	if t.file == nil {
		return false
	}
	one, err := t.file.Stat()
	if err != nil {
		return false
	}
	other, err := os.Stat(t.path)
	return err == nil && !os.SameFile(one, other)
}
