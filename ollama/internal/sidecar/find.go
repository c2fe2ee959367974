package sidecar

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/home"
)

// Find gives the command line that starts a sidecar listening on socket, or says what is missing.
func Find(socket string) ([]string, error) {
	program, err := findProgram()
	if err != nil {
		return nil, err
	}
	data, err := home.Folder()
	if err != nil {
		return nil, err
	}
	return append(program, "--socket", socket, "--data", data), nil
}

// findProgram looks in KAFILA_SIDECAR, then beside us, where a package installs both, so that its own Python runs it,
// then on PATH and in the checkout, and last for a Python that has it.
func findProgram() ([]string, error) {
	if named := os.Getenv(env.Sidecar); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return nil, fmt.Errorf("%s names %s, which can't be run: sessions are off", env.Sidecar, named)
		}
		return []string{path}, nil
	}
	for _, candidate := range candidates() {
		if path, err := exec.LookPath(candidate); err == nil {
			return []string{path}, nil
		}
	}
	// -P keeps a folder of that name in the current directory from being taken for it.
	const probe = `import importlib.util as u, sys; sys.exit(not (u.find_spec("kafila_proto") and u.find_spec("kafila_sidecar")))`
	if python, err := exec.LookPath("python3"); err == nil && exec.Command(python, "-P", "-c", probe).Run() == nil {
		return []string{python, "-P", "-m", "kafila_sidecar"}, nil
	}
	return nil, errors.New("no Kafila sidecar was found, so this server has no sessions: " +
		"run `pip install 'kafila[node]'`, or name the program in " + env.Sidecar)
}

// candidates are where the program may lie, the likeliest first.
func candidates() []string {
	const name = "kafila-sidecar"
	exe, err := executable()
	if err != nil {
		return []string{name}
	}
	folder := filepath.Dir(exe)
	return []string{filepath.Join(folder, name), name, filepath.Join(folder, "..", ".venv", "bin", name)}
}

// executable is our own file with links followed, as the scheduler starts it.
func executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(exe)
}
