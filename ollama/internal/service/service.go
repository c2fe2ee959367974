// Package service has the system run `serve`: by systemd or launchd, for this user or for the machine. It imports
// nothing of ours, runs nothing by itself (its caller gives it how), and knows nothing of sessions.
package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A Wish is what is to run, and as whom.
type Wish struct {
	Program string // our own file, absolute
	Machine bool   // at the machine's start, not at the user's
	User    string // whose it is
	Home    string // that user's
	Config  string // where that user's settings are: XDG_CONFIG_HOME, else ~/.config
	System  string // where the machine's are: /etc on Linux, /Library on macOS
	UID     int
}

// A Runner runs a command of the system's and gives what it said.
type Runner func(ctx context.Context, command ...string) (string, error)

// A Service is one that can be installed: its files, and the commands that start, stop and ask after it.
type Service struct {
	Kind        string // for people
	Unit        string // the path of the file by which the system knows it
	Log         string // how its log is read
	Hint        string // what people may want to do besides; empty for nothing
	files       []file
	start, stop [][]string
	state       []string
	isUp        func(said string) bool
}

// A file of a service's; all are their owner's alone, since variables may hold tokens.
type file struct {
	path string
	text []byte
}

const (
	fileMode   = 0o600
	folderMode = 0o755
)

// On is the service of a wish on a system, as Go calls it.
func On(system string, wish Wish, variables []Variable) (Service, error) {
	switch system {
	case "linux":
		return systemd(wish, variables)
	case "darwin":
		return launchd(wish, variables)
	}
	return Service{}, fmt.Errorf("services are made for systemd and launchd, which %s has not: have it run `%s serve`", system, wish.Program)
}

// Install writes the files and starts the service, anew if it is there. A new one that can't be started leaves nothing.
func (s Service) Install(ctx context.Context, run Runner) error {
	was := s.installed()
	if was {
		s.each(ctx, run, s.stop) //nolint:errcheck // that it did not run is no fault
	}
	for _, one := range s.files {
		if err := write(one); err != nil {
			return fmt.Errorf("%s can't be written: %w", one.path, reason(err))
		}
	}
	err := s.each(ctx, run, s.start)
	if err != nil && !was {
		return errors.Join(err, s.remove())
	}
	return err
}

func (s Service) remove() error {
	for _, one := range s.files {
		if err := os.Remove(one.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s can't be removed: %w", one.path, reason(err))
		}
	}
	return nil
}

// Uninstall stops the service and removes its files. It says false if there was none.
func (s Service) Uninstall(ctx context.Context, run Runner) (bool, error) {
	if !s.installed() {
		return false, nil
	}
	stopped := s.each(ctx, run, s.stop)
	return true, errors.Join(s.remove(), stopped)
}

// A Condition is how a service is.
type Condition struct {
	Installed, Running bool
	Outdated           bool // installed otherwise than it would be now
}

// Condition asks the system.
func (s Service) Condition(ctx context.Context, run Runner) Condition {
	if !s.installed() {
		return Condition{}
	}
	said, _ := run(ctx, s.state...) // its exit status says no more than its words
	unit, err := os.ReadFile(s.Unit)
	return Condition{Installed: true, Running: s.isUp(said), Outdated: err != nil || !bytes.Equal(unit, s.files[0].text)}
}

func (s Service) installed() bool {
	_, err := os.Lstat(s.Unit)
	return err == nil
}

// each runs commands in order, and stops at the first that fails.
func (s Service) each(ctx context.Context, run Runner, commands [][]string) error {
	for _, command := range commands {
		if said, err := run(ctx, command...); err != nil {
			if said = strings.TrimSpace(said); said == "" {
				said = err.Error()
			}
			return fmt.Errorf("`%s` failed: %s", strings.Join(command, " "), said)
		}
	}
	return nil
}

// write puts a file in place whole: nobody reads half of it, and nobody but its owner reads it.
func write(one file) error {
	folder := filepath.Dir(one.path)
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return err
	}
	beside, err := os.CreateTemp(folder, ".kafila-*") // with fileMode
	if err != nil {
		return err
	}
	defer os.Remove(beside.Name()) //nolint:errcheck // it is gone when all went well
	_, err = beside.Write(one.text)
	if err = errors.Join(err, beside.Chmod(fileMode), beside.Close()); err != nil {
		return err
	}
	return os.Rename(beside.Name(), one.path)
}

// reason is an error of the file system's without the path, which the sentence has already.
func reason(err error) error {
	var of *os.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
