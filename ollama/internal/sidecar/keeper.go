// Package sidecar finds the sidecar's program, keeps it running, and dials it. It imports env, home and
// foreign.
package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"kafila/ollama/pb"
)

// FirstPause is how long a sidecar that has ended stays down at first; each further time it is twice as long.
const FirstPause = 1 * time.Second

// How long a sidecar may take, and how often it may fail in a row.
const (
	helloTimeout  = 120 * time.Second // a cold import of MLX on a busy machine
	steadyTime    = 60 * time.Second  // one that ran this long starts the count anew
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

// A Keeper keeps one sidecar process running for as long as the server lives. The process ends with us whatever happens:
// its standard input is a pipe that only we hold.
type Keeper struct {
	command []string // empty when none was found
	folder  heldFolder
	socket  string
	client  pb.SidecarClient
	conn    *grpc.ClientConn

	firstPause time.Duration

	mu      sync.Mutex
	now     condition
	why     string        // one sentence, while not up
	changed chan struct{} // closed at the next change
}

// New prepares a socket in a folder that only this user can enter, and finds the program by `find`, which gets the
// socket's path. That there is no such folder or program is no error here: the server runs without sessions and says so.
func New(find func(socket string) ([]string, error), firstPause time.Duration) (*Keeper, error) {
	folder, failed := holdFolder()
	k := &Keeper{folder: folder, socket: filepath.Join(folder.path, "sidecar.sock"), firstPause: firstPause}
	k.now, k.changed = starting, make(chan struct{})
	if failed == nil {
		k.command, failed = find(k.socket)
	}
	if failed != nil {
		k.now, k.why = gone, failed.Error()
	}
	var err error
	if k.conn, err = Dial(k.socket); err != nil {
		return nil, err
	}
	k.client = pb.NewSidecarClient(k.conn)
	return k, nil
}

// Socket is the path of the socket at which the sidecar answers.
func (k *Keeper) Socket() string { return k.socket }

// Client calls the sidecar; Await says whether it is there.
func (k *Keeper) Client() pb.SidecarClient { return k.client }

// Close removes the socket's folder; the process has ended before.
func (k *Keeper) Close() {
	k.conn.Close()
	if err := k.folder.remove(); err != nil {
		slog.Debug("sidecar_folder_not_removed", "error", err)
	}
}

func (k *Keeper) set(now condition, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now, k.why = now, why
	close(k.changed)
	k.changed = make(chan struct{})
}

// Await returns when the sidecar answers, or with UNAVAILABLE and one sentence when it won't for now.
func (k *Keeper) Await(ctx context.Context) error {
	for {
		k.mu.Lock()
		now, why, changed := k.now, k.why, k.changed
		k.mu.Unlock()
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

// Run keeps the process alive until ctx ends and returns when it is gone. before is called each time before it is
// started, started each time that it answers.
func (k *Keeper) Run(ctx context.Context, before, started func()) {
	if len(k.command) == 0 {
		slog.Warn("sidecar_not_found", "reason", k.why)
		return
	}
	pause, failures := k.firstPause, 0
	for {
		before()
		begin := time.Now()
		err := k.once(ctx, started)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > steadyTime {
			pause, failures = k.firstPause, 0
		}
		if failures++; failures >= failuresInRow {
			k.set(gone, fmt.Sprintf("the Kafila sidecar failed %d times in a row and is not started again (%s): "+
				"see the log, then start `ollama serve` anew", failures, err))
			slog.Error("sidecar_given_up", "failures", failures, "error", err)
			return
		}
		slog.Error("sidecar_ended", "error", err, "next_start_s", pause.Seconds())
		k.set(down, fmt.Sprintf("the Kafila sidecar on this machine ended (%s) and is started again in %.0f s", err, pause.Seconds()))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
		k.set(starting, "")
	}
}

// once starts the process, waits until it answers, then until it ends, and returns why it did.
func (k *Keeper) once(ctx context.Context, started func()) error {
	if err := os.Remove(k.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	p, err := startProcess(k.command)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := k.hello(ctx, p); err != nil {
		return err
	}
	k.set(up, "")
	started()
	select {
	case <-p.ended:
		return p.reason
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hello is the one readiness call: it waits for the socket and for the sidecar to say that it can serve.
func (k *Keeper) hello(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	go func() {
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	reply, err := k.client.Hello(ctx, &pb.HelloRequest{}, grpc.WaitForReady(true))
	if err == nil {
		if why, lacks := strings.CutPrefix(reply.Device, "none: "); lacks {
			slog.Warn("sidecar_without_device", "reason", why)
		}
		slog.Info("sidecar_ready", "version", reply.Version, "pid", reply.Pid, "device", reply.Device)
		return nil
	}
	select {
	case <-p.ended:
		return p.reason
	default:
		return fmt.Errorf("it did not answer within %.0f s: %s", helloTimeout.Seconds(), status.Convert(err).Message())
	}
}
