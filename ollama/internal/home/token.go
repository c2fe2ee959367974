package home

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	tokenFile  = "token"
	tokenBytes = 32 // of randomness; the file has them in hexadecimal digits
)

// KeepToken gives the token of this user's servers, the same each time. A missing one is made, and one that others could
// have read or written is replaced.
func KeepToken() (string, error) {
	folder, err := Folder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(folder, tokenFile)
	token, err := trusted(path)
	if err == nil {
		return token, nil
	}
	fresh, made := freshToken(folder)
	if made != nil {
		return "", made
	}
	defer os.Remove(fresh)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Link(fresh, path) // not if another server has just made one
	} else {
		slog.Warn("owner_token_replaced", "path", path, "reason", err)
		err = os.Rename(fresh, path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return trusted(path)
}

// ReadToken gives the token that a server of this user has left for the command line, or "".
func ReadToken() string {
	folder, err := Folder()
	if err != nil {
		return ""
	}
	token, err := trusted(filepath.Join(folder, tokenFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Debug("owner_token_not_read", "error", err)
	}
	return token
}

// trusted reads a token that nobody but this user can have read or written.
func trusted(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := checkOwner(file); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(file, 4*tokenBytes))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if secret, err := hex.DecodeString(token); err != nil || len(secret) != tokenBytes {
		return "", errors.New("it holds no token")
	}
	return token, nil
}

func checkOwner(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("it is no file")
	case known && int(owner.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d", owner.Uid)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may open it: mode %o", info.Mode().Perm())
	}
	return nil
}

// freshToken writes a new token to a file of its own, mode 0600, and gives the file's path.
func freshToken(folder string) (string, error) {
	file, err := os.CreateTemp(folder, tokenFile+"-")
	if err != nil {
		return "", err
	}
	secret := make([]byte, tokenBytes)
	rand.Read(secret) // never fails
	_, err = fmt.Fprintln(file, hex.EncodeToString(secret))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}
