package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// runPrefix begins the names of folders that somebody holds while it runs: servers, and rendezvous, which follow the
// same rule (kafila_rendezvous/front/folder.py).
const runPrefix = "kafila-run-"

// A heldFolder is a folder of mode 0700 with a lock on it that the system takes back when this process ends, however
// it ends. So a folder whose lock is free is nobody's any more.
type heldFolder struct {
	path string
	lock *os.File
}

// triesToHold is how often a folder is made anew that somebody cleared away before it was locked.
const triesToHold = 4

var errTaken = errors.New("cleared away by another server")

// holdFolder makes one where sockets belong, and clears away those that servers left which did not end in order.
func holdFolder() (heldFolder, error) {
	const room = 104 - len("/"+runPrefix+"1234567890/sidecar.sock") // a socket's path: 104 bytes on macOS, 108 on Linux
	var failed error
	for _, parent := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if parent == "" || len(parent) > room {
			continue
		}
		clearStale(parent)
		for range triesToHold {
			held, err := holdFolderIn(parent)
			if err == nil {
				return held, nil
			}
			failed = err
		}
	}
	return heldFolder{}, fmt.Errorf("no folder for the sidecar's socket can be made, so this server has no sessions: "+
		"make /tmp writable, or name a folder with a short path in TMPDIR (%w)", failed)
}

func holdFolderIn(parent string) (heldFolder, error) {
	path, err := os.MkdirTemp(parent, runPrefix)
	if err != nil {
		return heldFolder{}, err
	}
	lock, err := locked(path)
	if err != nil {
		os.Remove(path) //nolint:errcheck // the error that counts is the lock's
		return heldFolder{}, err
	}
	return heldFolder{path, lock}, nil
}

// remove takes the folder away while it is held, and then lets go of it.
func (h heldFolder) remove() error {
	if h.lock == nil {
		return nil
	}
	defer h.lock.Close()
	return os.RemoveAll(h.path)
}

// clearStale removes the folders of this user there that nobody holds. Only who has the lock removes, so that two who
// clear at the same time, or one who clears while another makes a folder, do no harm.
func clearStale(parent string) {
	left, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, entry := range left {
		if !strings.HasPrefix(entry.Name(), runPrefix) {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		lock, err := locked(path)
		if err != nil {
			continue // somebody's, or nothing that we made
		}
		err = os.RemoveAll(path) // which follows no links
		slog.Info("stale_folder_removed", "folder", path, "error", err)
		lock.Close()
	}
}

// locked opens a folder of this user's that only it can enter, no link to one, and takes its lock, unless somebody has
// it or the name belongs to something else meanwhile.
func locked(path string) (*os.File, error) {
	lock, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err = ours(lock); err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil && !isStill(lock, path) {
		err = errTaken
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

func ours(folder *os.File) error {
	info, err := folder.Stat()
	if err != nil {
		return err
	}
	system, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(system.Uid) != os.Getuid() || info.Mode().Perm() != 0o700 {
		return os.ErrPermission
	}
	return nil
}

func isStill(folder *os.File, path string) bool {
	one, err := folder.Stat()
	if err != nil {
		return false
	}
	other, err := os.Lstat(path)
	return err == nil && os.SameFile(one, other)
}
