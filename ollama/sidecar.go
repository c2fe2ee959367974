package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"kafila/ollama/pb"
)

const (
	socketVariable    = "KAFILA_SOCKET"     // set by serve for its runners
	serverPidVariable = "KAFILA_SERVER_PID" // likewise
	commandVariable   = "KAFILA_SIDECAR"
	homeVariable      = "KAFILA_HOME"
)

// How long a sidecar may take, and how often it may fail in a row.
const (
	helloTimeout  = 120 * time.Second // a cold import of MLX on a busy machine
	steadyTime    = 60 * time.Second  // one that ran this long starts the count anew
	firstPause    = 1 * time.Second
	longestPause  = 30 * time.Second
	failuresInRow = 6
)

type condition string

const (
	starting condition = "starting"
	up       condition = "up"
	down     condition = "down" // ended; the next start is due
	gone     condition = "gone" // never found, or given up
)

// A sidecar keeps one sidecar process running for as long as the server lives. It ends with us whatever happens:
// its standard input is a pipe that only we hold.
type sidecar struct {
	command []string // empty when none was found
	socket  string
	client  pb.SidecarClient
	conn    *grpc.ClientConn

	firstPause time.Duration

	mu      sync.Mutex
	now     condition
	why     string        // one sentence, while not up
	changed chan struct{} // closed at the next change
}

// newSidecar prepares a socket in a folder that only this user can enter, and finds the program by `find`, which gets
// the socket's path. That none is found is no error here: the server runs without sessions and says so.
func newSidecar(find func(socket string) ([]string, error)) (*sidecar, error) {
	folder, err := socketFolder()
	if err != nil {
		return nil, err
	}
	s := &sidecar{socket: filepath.Join(folder, "sidecar.sock"), firstPause: firstPause}
	s.now, s.changed = starting, make(chan struct{})
	if s.command, err = find(s.socket); err != nil {
		s.now, s.why = gone, err.Error()
	}
	if s.conn, err = dialSidecar(s.socket); err != nil {
		return nil, err
	}
	s.client = pb.NewSidecarClient(s.conn)
	return s, nil
}

// socketFolder makes a folder with mode 0700 where sockets belong.
func socketFolder() (string, error) {
	const room = 104 - len("/kafila-1234567890/sidecar.sock") // a socket's path: 104 bytes on macOS, 108 on Linux
	var failed error
	for _, parent := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if parent == "" || len(parent) > room {
			continue
		}
		folder, err := os.MkdirTemp(parent, "kafila-")
		if err == nil {
			return folder, nil
		}
		failed = errors.Join(failed, err)
	}
	return "", fmt.Errorf("no folder for the sidecar's socket: %w", failed)
}

// dialSidecar opens a channel to a sidecar's socket; nothing is connected before the first call.
func dialSidecar(socket string) (*grpc.ClientConn, error) {
	retry := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 250 * time.Millisecond}
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket that only this user can open
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
	)
}

// close removes the socket's folder; the process has ended before.
func (s *sidecar) close() {
	s.conn.Close()
	if err := os.RemoveAll(filepath.Dir(s.socket)); err != nil {
		slog.Debug("sidecar_folder_not_removed", "error", err)
	}
}

func (s *sidecar) set(now condition, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.why = now, why
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns when the sidecar answers, or with UNAVAILABLE and one sentence when it won't for now.
func (s *sidecar) await(ctx context.Context) error {
	for {
		s.mu.Lock()
		now, why, changed := s.now, s.why, s.changed
		s.mu.Unlock()
		switch now {
		case up:
			return nil
		case down, gone:
			return unavailable(why)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run keeps the process alive until ctx ends and returns when it is gone. started is called each time that it answers.
func (s *sidecar) run(ctx context.Context, started func()) {
	if len(s.command) == 0 {
		slog.Warn("sidecar_not_found", "reason", s.why)
		return
	}
	pause, failures := s.firstPause, 0
	for {
		begin := time.Now()
		err := s.once(ctx, started)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > steadyTime {
			pause, failures = s.firstPause, 0
		}
		if failures++; failures >= failuresInRow {
			s.set(gone, fmt.Sprintf("the Kafila sidecar failed %d times in a row and is not started again (%s): "+
				"see the log, then start `ollama serve` anew", failures, err))
			slog.Error("sidecar_given_up", "failures", failures, "error", err)
			return
		}
		slog.Error("sidecar_ended", "error", err, "next_start_s", pause.Seconds())
		s.set(down, fmt.Sprintf("the Kafila sidecar on this machine ended (%s) and is started again in %.0f s", err, pause.Seconds()))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
		s.set(starting, "")
	}
}

// once starts the process, waits until it answers, then until it ends, and returns why it did.
func (s *sidecar) once(ctx context.Context, started func()) error {
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, err := startProcess(s.command)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := s.hello(ctx, p); err != nil {
		return err
	}
	s.set(up, "")
	started()
	select {
	case <-p.ended:
		return p.reason
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hello is the one readiness call: it waits for the socket and for the sidecar to say that it can serve.
func (s *sidecar) hello(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	go func() {
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	reply, err := s.client.Hello(ctx, &pb.HelloRequest{}, grpc.WaitForReady(true))
	if err == nil {
		slog.Info("sidecar_ready", "version", reply.Version, "pid", reply.Pid, "device", reply.Device)
		return nil
	}
	select {
	case <-p.ended:
		return p.reason
	default:
		return fmt.Errorf("it did not answer: %w", err)
	}
}
