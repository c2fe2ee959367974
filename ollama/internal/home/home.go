// Package home is this user's Kafila folder: where it is, and the token in it by which the server knows its owner. It
// imports only env.
package home

import (
	"fmt"
	"os"
	"path/filepath"

	"kafila/ollama/internal/env"
)

// Folder is where weights, keys, traces and the owner's token are: KAFILA_HOME, else ~/.kafila.
func Folder() (string, error) {
	if folder := os.Getenv(env.Home); folder != "" {
		return filepath.Abs(folder)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder for Kafila's data: set %s", env.Home)
	}
	return filepath.Join(home, ".kafila"), nil
}
