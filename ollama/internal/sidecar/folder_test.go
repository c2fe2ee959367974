package sidecar

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// left makes a folder as a server leaves it that was killed.
func left(t *testing.T, parent string) string {
	t.Helper()
	path, err := os.MkdirTemp(parent, runPrefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "sidecar.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClearStale_whenServersAreGoneOrRun_removesOnlyWhatIsNobodys(t *testing.T) {
	parent, elsewhere := t.TempDir(), t.TempDir()
	gone := left(t, parent)
	held, err := holdFolderIn(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer held.remove() //nolint:errcheck // the test has ended
	open := left(t, parent)
	if err := os.Chmod(open, 0o755); err != nil { // nothing that a server makes
		t.Fatal(err)
	}
	other := filepath.Join(parent, "kafila-other")
	target := left(t, elsewhere)
	link := filepath.Join(parent, runPrefix+"link")
	file := filepath.Join(parent, runPrefix+"file")
	inside := filepath.Join(left(t, parent), "link")
	for _, err := range []error{os.Mkdir(other, 0o700), os.Symlink(target, link), os.WriteFile(file, nil, 0o600), os.Symlink(target, inside)} {
		if err != nil {
			t.Fatal(err)
		}
	}

	clearStale(parent)

	for path, stays := range map[string]bool{
		gone: false, filepath.Dir(inside): false,
		held.path: true, open: true, other: true, link: true, file: true, filepath.Join(target, "sidecar.sock"): true,
	} {
		if _, err := os.Lstat(path); (err == nil) != stays {
			t.Errorf("%s: %v, stays %v", path, err, stays)
		}
	}
}

func TestHoldFolder_whenManyStartAndClearAtOnce_leavesEachItsOwn(t *testing.T) {
	parent := t.TempDir()
	var all sync.WaitGroup
	held := make([]heldFolder, 24)
	for i := range held {
		all.Add(1)
		go func() {
			defer all.Done()
			clearStale(parent)
			for held[i].lock == nil {
				held[i], _ = holdFolderIn(parent)
			}
		}()
	}
	all.Wait()
	clearStale(parent)
	for _, one := range held {
		if _, err := os.Stat(one.path); err != nil {
			t.Error(err)
		}
		if err := one.remove(); err != nil {
			t.Error(err)
		}
	}
	if rest, _ := os.ReadDir(parent); len(rest) != 0 {
		t.Errorf("%d folders are left", len(rest))
	}
}

// The test binary, started for this test alone, holds a folder until it is killed.
func TestHoldFolder_whenItsProcessIsKilled_isClearedAwayByTheNextStart(t *testing.T) {
	const variable = "KAFILA_TEST_HOLD"
	if parent := os.Getenv(variable); parent != "" {
		if _, err := holdFolderIn(parent); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("held\n") //nolint:errcheck // the other end waits for it
		select {}
	}
	parent := t.TempDir()
	command := exec.Command(os.Args[0], "-test.run", t.Name())
	command.Env = append(os.Environ(), variable+"="+parent)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	clearStale(parent)
	if rest, _ := os.ReadDir(parent); len(rest) != 1 {
		t.Fatalf("%d folders while its process runs", len(rest))
	}
	command.Process.Kill() //nolint:errcheck // Wait says how it ended
	command.Wait()         //nolint:errcheck // it was killed
	clearStale(parent)
	if rest, _ := os.ReadDir(parent); len(rest) != 0 {
		t.Errorf("%d folders are left", len(rest))
	}
}
