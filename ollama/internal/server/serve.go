// Package server is what `ollama serve` has beside the stock server: the session routes with their guard, and the
// models of this machine's sessions in the Ollama store. It imports front, known, sidecar, stub, seal, envelope, sessionapi,
// page, qr, logbook, home and env, and nothing of the command line.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/envconfig"
	"github.com/ollama/ollama/logutil"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/front"
	"kafila/ollama/internal/home"
	"kafila/ollama/internal/logbook"
	"kafila/ollama/internal/page"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/internal/stub"
)

// Serve runs the stock server by calling stock, with a sidecar beside it and the session routes in front of its own.
func Serve(ctx context.Context, stock func() error) error {
	slog.SetDefault(logutil.NewLogger(os.Stderr, envconfig.LogLevel()))
	book := openLog()
	if err := portIsFree(envconfig.Host().Host); err != nil {
		return err
	}
	if err := stockHasItsFolder(); err != nil {
		return err
	}
	if err := leaveNoCore(); err != nil {
		slog.Warn("core_dumps_not_refused", "error", err)
	}
	useInstalledLibraries()
	scheduler := &Scheduler{}
	scheduler.Adopt()
	keeper, err := sidecar.New(sidecar.Find, sidecar.FirstPause)
	if err != nil {
		return err
	}
	defer keeper.Close()
	key := seal.New()
	envelope.Register(func(body string) string { return key.Of(seal.Chat, body) })
	if err := tellRunners(keeper.Socket(), key); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	ollama := api.NewClient(envconfig.Host(), &http.Client{Transport: &seal.Transport{Seal: key.ToStore}})
	owner, release := ownership(keeper.Socket())
	defer release()
	models := NewSessionModels(ctx, keeper.Client(), ollama, scheduler, key, owner)
	standBefore(http.DefaultServeMux, Routes(keeper, models, accessOfOwner()), models, key)
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		keepLog := func() { logbook.Keep(book) } // again, since stock sets a logger of its own
		keeper.Run(ctx, keepLog, func() {
			keepLog()
			go models.reconcile()
		})
		models.Known.Comeback.Expect(nil) // without a sidecar nothing comes back
	}()
	err = stock()
	cancel()
	running.Wait()
	return err
}

// openLog has what our parts say kept in the log from now on. Without a log the server runs on.
func openLog() *logbook.File {
	folder, err := logbook.Folder()
	var book *logbook.File
	if err == nil {
		book, err = logbook.Open(folder)
	}
	if err != nil {
		slog.Warn("log_not_kept", "error", err)
		return nil
	}
	logbook.Keep(book)
	return book
}

// ownership gives the file that says of stub models that their server lives, until release; without one, nothing says it.
func ownership(socket string) (owner string, release func() error) {
	owner = filepath.Join(filepath.Dir(socket), "owner")
	release, err := stub.Own(owner)
	if err != nil {
		slog.Warn("session_models_not_owned", "error", err)
		return "", func() error { return nil }
	}
	return owner, release
}

// leaveNoCore has the system keep no picture of our memory on the disk should we crash, nor of the sidecar's and the
// runners' that we start: codes, keys and prompts are in it.
func leaveNoCore() error {
	return syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
}

// standBefore registers what is ours on the mux that stock serves.
func standBefore(mux *http.ServeMux, sessions http.Handler, models *SessionModels, key seal.Key) {
	mux.Handle("/api/session/", sessions)
	mux.Handle("/metrics", sessions)
	seen := page.Handler()
	mux.Handle("/session", seen)
	mux.Handle("/session/", seen)
	before := &front.Front{
		Models: models.Known, Sidecar: models.sidecar, Fetched: models.removeCopies, Key: key, Patience: front.ComebackPatience,
	}
	before.StandBefore(mux)
}

// accessOfOwner leaves a token in the owner's home. Without one the server runs on, and says so to who asks.
func accessOfOwner() Access {
	token, err := home.KeepToken()
	if err != nil {
		slog.Warn("owner_token_not_kept", "error", err)
	}
	return Access{Owner: token, Remote: os.Getenv(env.Token), Lacking: err}
}

// tellRunners leaves in the environment what the runners that the scheduler starts have to know, and has stock's requests
// to them sealed.
func tellRunners(socket string, key seal.Key) error {
	sealed := &seal.Transport{Seal: key.ToRunner}
	http.DefaultClient.Transport = front.Listening(sealed) // which stock's scheduler asks them with
	return errors.Join(
		os.Setenv(env.Socket, socket), os.Setenv(env.ServerPID, strconv.Itoa(os.Getpid())), os.Setenv(env.Seal, key.Encode()))
}

// portIsFree refuses early, and says how to go on when another Ollama has the port.
func portIsFree(address string) error {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	holder := "another program"
	client := http.Client{Timeout: 2 * time.Second}
	if answer, err := client.Get("http://" + address + "/api/version"); err == nil {
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			holder = "another Ollama"
		}
	}
	return fmt.Errorf("%s is taken by %s: stop that one, or use another port with OLLAMA_HOST=127.0.0.1:11500 "+
		"for this command and for those that talk to it", address, holder)
}
