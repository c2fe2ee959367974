package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stockHasItsFolder refuses early, and says how to go on, where stock could not keep its key: beside which it keeps what
// people typed and, unless told otherwise, its models.
func stockHasItsFolder() error {
	home, err := os.UserHomeDir()
	if err != nil {
		return errors.New("no home folder is known: start the server with HOME set to one of this user's")
	}
	folder := filepath.Join(home, ".ollama")
	if _, err := os.Stat(filepath.Join(folder, "id_ed25519")); err == nil {
		return nil // it reads it, and may go on without writing
	}
	if err := canMakeFiles(folder); err != nil {
		return fmt.Errorf("%s can't be used (%w): make it this user's own, or start the server with HOME set to a folder that is", folder, reason(err))
	}
	return nil
}

// canMakeFiles makes a folder unless it is there, and a file in it for a moment.
func canMakeFiles(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	tried, err := os.CreateTemp(folder, ".tried-*")
	if err != nil {
		return err
	}
	return errors.Join(tried.Close(), os.Remove(tried.Name()))
}

// reason is an error of the file system's without the path.
func reason(err error) error {
	var of *fs.PathError
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
