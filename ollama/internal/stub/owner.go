package stub

import (
	"errors"
	"os"
	"syscall"
)

// Own locks a file, which is made, for as long as this process lives: stub models that name it are this server's. The
// system gives the lock back however the process ends.
func Own(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	owned = file // never closed
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

var owned *os.File

// IsHeld is true of a file that a living process holds locked.
func IsHeld(path string) bool {
	if path == "" {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK)
}
