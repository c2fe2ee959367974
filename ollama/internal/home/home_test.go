package home

import (
	"testing"

	"kafila/ollama/internal/env"
)

func TestFolder(t *testing.T) {
	t.Setenv("HOME", "/home/ann")
	t.Setenv(env.Home, "")
	if folder, _ := Folder(); folder != "/home/ann/.kafila" {
		t.Error(folder)
	}
	t.Setenv(env.Home, "/data/kafila")
	if folder, _ := Folder(); folder != "/data/kafila" {
		t.Error(folder)
	}
}
