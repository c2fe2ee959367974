package server

import (
	"os"
	"path/filepath"
	"testing"
)

func TestStockHasItsFolder_whenItCantBeMade_saysWhichAndWhatToDo(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.WriteFile(filepath.Join(home, ".ollama"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(home, ".ollama") + " can't be used (not a directory): make it this user's own, or start the server with HOME set to a folder that is"
	if err := stockHasItsFolder(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestStockHasItsFolder_whenItIsThere_leavesNothingInIt(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for range 2 {
		if err := stockHasItsFolder(); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(filepath.Join(home, ".ollama")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestStockHasItsFolder_whenTheKeyIsThere_asksForNoMore(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	folder := filepath.Join(home, ".ollama")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "id_ed25519"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(folder, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := stockHasItsFolder(); err != nil {
		t.Error(err)
	}
}

func TestStockHasItsFolder_whenNoHomeIsKnown_saysSo(t *testing.T) {
	t.Setenv("HOME", "")
	if err := stockHasItsFolder(); err == nil {
		t.Error("no home was enough")
	}
}
