package sidecar

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
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
	said := &lastWords{out: os.Stderr}
	cmd.Stdout, cmd.Stderr = os.Stderr, said
	cmd.WaitDelay = time.Second                           // what it started may hold its standard error open
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
		if sentence := said.sentence(); sentence != "" && cmd.ProcessState.ExitCode() > 0 {
			p.reason = errors.New(sentence)
		} else if p.reason == nil {
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
