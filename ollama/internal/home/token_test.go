package home

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kafila/ollama/internal/env"
)

func homeAt(t *testing.T) (token string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "new", "kafila")
	t.Setenv(env.Home, folder)
	return filepath.Join(folder, tokenFile)
}

func keep(t *testing.T) string {
	t.Helper()
	token, err := KeepToken()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestKeepToken_whenThereIsNone_makesOneForTheOwnerAlone(t *testing.T) {
	path := homeAt(t)
	if token := ReadToken(); token != "" {
		t.Errorf("before: %q", token)
	}
	made := keep(t)
	for file, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if len(made) < 2*tokenBytes || keep(t) != made || ReadToken() != made {
		t.Errorf("%q, %q, %q", made, keep(t), ReadToken())
	}
	if left, _ := filepath.Glob(path + "-*"); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestKeepToken_whenServersStartTogether_givesAllTheSame(t *testing.T) {
	homeAt(t)
	tokens := make([]string, 16)
	var all sync.WaitGroup
	for i := range tokens {
		all.Add(1)
		go func() {
			defer all.Done()
			tokens[i], _ = KeepToken()
		}()
	}
	all.Wait()
	for _, token := range tokens {
		if token != ReadToken() || token == "" {
			t.Errorf("%q beside %q", token, ReadToken())
		}
	}
}

func TestKeepToken_whenOthersCanHaveTouchedIt_makesANewOne(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"readable by the group": func(path string) error { return os.Chmod(path, 0o640) },
		"writable by all":       func(path string) error { return os.Chmod(path, 0o602) },
		"emptied":               func(path string) error { return os.Truncate(path, 0) },
		"no token":              func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 64)), 0o600) },
		"a link": func(path string) error {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+"-elsewhere", text, 0o600); err != nil {
				return err
			}
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(path+"-elsewhere", path)
		},
		"a pipe": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return syscall.Mkfifo(path, 0o600)
		},
		"somebody else's": func(path string) error {
			if os.Geteuid() != 0 {
				return os.Chmod(path, 0o604) // only root can give files away
			}
			return os.Chown(path, 65534, 65534)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := homeAt(t)
			old := keep(t)
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			if token := ReadToken(); token != "" {
				t.Errorf("the command line takes it: %q", token)
			}
			fresh := keep(t)
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o600 || fresh == old || ReadToken() != fresh {
				t.Errorf("%v, %v, %t", info.Mode(), err, fresh == old)
			}
		})
	}
}

func TestKeepToken_whenItWasCutAtAnyByte_makesANewOneOrHasTheWhole(t *testing.T) {
	path := homeAt(t)
	for length := range 2*tokenBytes + 1 {
		old := keep(t)
		if err := os.Truncate(path, int64(length)); err != nil {
			t.Fatal(err)
		}
		whole := length == 2*tokenBytes // but for the line's end
		if read := ReadToken(); (read == old) != whole || !whole && read != "" {
			t.Errorf("cut at %d: the command line takes %q", length, read)
		}
		if now := keep(t); (now == old) != whole || ReadToken() != now {
			t.Errorf("cut at %d: %q after %q", length, now, old)
		}
	}
}

func TestKeepToken_whenTheHomeCantBeWritten_saysWhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(env.Home, filepath.Join(file, "kafila"))
	if token, err := KeepToken(); err == nil || token != "" || !strings.Contains(err.Error(), file) {
		t.Errorf("%q, %v", token, err)
	}
}
