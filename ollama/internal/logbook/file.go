package logbook

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// A File takes lines and begins anew when it is full; the old ones stay beside it, as many as are kept.
type File struct {
	path    string
	most    int64 // bytes
	mu      sync.Mutex
	present *os.File
	size    int64
}

// Open is the server's file in a folder, which is made for this user alone.
func Open(folder string) (*File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	f := &File{path: filepath.Join(folder, serverFile), most: largestFileBytes}
	return f, f.open()
}

// Write takes one whole line.
func (f *File) Write(line []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(line)) > f.most {
		if err := f.turn(); err != nil {
			return 0, err
		}
	}
	n, err := f.present.Write(line)
	f.size += int64(n)
	return n, err
}

// Close ends it.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.present.Close()
}

func (f *File) open() error {
	present, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	info, err := present.Stat()
	if err == nil {
		err = present.Chmod(0o600)
	}
	if err != nil {
		present.Close()
		return err
	}
	f.present, f.size = present, info.Size()
	return nil
}

// turn sets the present file aside and begins another one.
func (f *File) turn() error {
	for number := oldFiles - 1; number >= 0; number-- {
		err := os.Rename(numbered(f.path, number), numbered(f.path, number+1))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	before := f.present
	if err := f.open(); err != nil {
		return err
	}
	return before.Close()
}

func numbered(path string, number int) string {
	if number == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, number)
}
