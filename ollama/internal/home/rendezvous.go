package home

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"kafila/ollama/internal/env"
)

// Where sessions meet can be kept in Kafila's folder, so that no variable has to be set; the sidecar reads it at each use,
// after that variable (config.py).
const rendezvousFile = "rendezvous.address"

var rendezvousAddress = regexp.MustCompile(`^(?:(?i:grpc\+insecure://)(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}|(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}(?:#[A-Za-z2-7]{16,52})?)$`)

// Rendezvous is the address that is kept, or "".
func Rendezvous() (string, error) {
	path, err := rendezvousPath()
	if err != nil {
		return "", err
	}
	kept, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err == nil && !strings.HasSuffix(string(kept), "\n") { // half an address may be one too
		err = fmt.Errorf("%s is cut short: say `ollama session rendezvous set` again", path)
	}
	return strings.TrimSpace(string(kept)), err
}

// KeepRendezvous keeps an address, which may be the line that a rendezvous prints, and returns it as it is kept.
func KeepRendezvous(said string) (string, error) {
	address := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(said), env.Rendezvous+"="))
	if !rendezvousAddress.MatchString(address) {
		return "", fmt.Errorf("%q is no rendezvous address: write host:port#fingerprint, as kafila-rendezvous prints it", said)
	}
	path, err := rendezvousPath()
	if err != nil {
		return "", err
	}
	if err := write(path, address+"\n"); err != nil {
		return "", fmt.Errorf("%s can't be written: %w: make its folder this user's own, or name another one in %s", path, cause(err), env.Home)
	}
	return address, nil
}

// write puts a whole file in a former one's place, on the disk before it has its name: half an address may be one too,
// with another port and no fingerprint.
func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	fresh := path + ".new"
	file, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

// cause is what the system said, without the call and the path.
func cause(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// ForgetRendezvous keeps none from now on.
func ForgetRendezvous() error {
	path, err := rendezvousPath()
	if err != nil {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func rendezvousPath() (string, error) {
	folder, err := Folder()
	return filepath.Join(folder, rendezvousFile), err
}
