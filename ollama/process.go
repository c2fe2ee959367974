package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// endTimeout is how long a sidecar may take from the end of its input to its own end.
const endTimeout = 5 * time.Second

// A process is one running sidecar.
type process struct {
	pid    int
	input  io.Closer     // its standard input; it ends when this does
	ended  chan struct{} // closed when it has ended
	reason error         // why; read it after ended
}

func startProcess(command []string) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is for us; we end it in order
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	slog.Info("sidecar_started", "pid", cmd.Process.Pid, "command", command[0])
	p := &process{pid: cmd.Process.Pid, input: input, ended: make(chan struct{})}
	go func() {
		p.reason = cmd.Wait()
		if p.reason == nil {
			p.reason = errors.New("it ended by itself")
		}
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process and whatever it started, in order if it can, and returns when it is gone.
func (p *process) stop() {
	p.input.Close()
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
		slog.Warn("sidecar_killed", "pid", p.pid, "waited_s", endTimeout.Seconds())
	}
	if err := syscall.Kill(-p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		slog.Debug("sidecar_group_not_killed", "error", err)
	}
	<-p.ended
}

// findSidecar gives the command line that starts a sidecar listening on socket, or says what is missing.
func findSidecar(socket string) ([]string, error) {
	program, err := findProgram()
	if err != nil {
		return nil, err
	}
	data, err := dataFolder()
	if err != nil {
		return nil, err
	}
	return append(program, "--socket", socket, "--data", data), nil
}

// findProgram looks in KAFILA_SIDECAR, on PATH, beside us and in the checkout, and last for a Python that has it.
func findProgram() ([]string, error) {
	if named := os.Getenv(commandVariable); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return nil, fmt.Errorf("%s names %s, which can't be run: sessions are off", commandVariable, named)
		}
		return []string{path}, nil
	}
	candidates := []string{"kafila-sidecar"}
	if exe, err := executable(); err == nil {
		folder := filepath.Dir(exe)
		candidates = append(candidates, filepath.Join(folder, "kafila-sidecar"),
			filepath.Join(folder, "..", ".venv", "bin", "kafila-sidecar"))
	}
	for _, candidate := range candidates {
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
		"run `pip install 'kafila[node]'`, or name the program in " + commandVariable)
}

// executable is our own file with links followed, as the scheduler starts it.
func executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(exe)
}

// dataFolder is where the sidecar keeps weights, keys and traces: KAFILA_HOME, else ~/.kafila.
func dataFolder() (string, error) {
	if folder := os.Getenv(homeVariable); folder != "" {
		return filepath.Abs(folder)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder for the sidecar's data: set %s", homeVariable)
	}
	return filepath.Join(home, ".kafila"), nil
}
