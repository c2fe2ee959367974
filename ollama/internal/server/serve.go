// Package server is what `ollama serve` has beside the stock server: the session routes with their guard, and the
// models of this machine's sessions in the Ollama store. It imports sidecar, stub, envelope, sessionapi and env, and
// nothing of the command line.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/envconfig"
	"github.com/ollama/ollama/logutil"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/sidecar"
)

// Serve runs the stock server by calling stock, with a sidecar beside it and the session routes in front of its own.
func Serve(ctx context.Context, stock func() error) error {
	slog.SetDefault(logutil.NewLogger(os.Stderr, envconfig.LogLevel()))
	if err := portIsFree(envconfig.Host().Host); err != nil {
		return err
	}
	useInstalledLibraries()
	envelope.Register()
	scheduler := &Scheduler{}
	scheduler.Adopt()
	keeper, err := sidecar.New(sidecar.Find, sidecar.FirstPause)
	if err != nil {
		return err
	}
	defer keeper.Close()
	if err := tellRunners(keeper.Socket()); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(ctx)
	models := NewSessionModels(ctx, keeper.Client(), api.NewClient(envconfig.Host(), http.DefaultClient), scheduler)
	http.Handle("/api/session/", Routes(keeper, models, os.Getenv(env.Token))) // stock serves http.DefaultServeMux
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		keeper.Run(ctx, func() { go models.reconcile() })
	}()
	err = stock()
	cancel()
	running.Wait()
	return err
}

// tellRunners leaves in the environment what the runners that the scheduler starts have to know.
func tellRunners(socket string) error {
	return errors.Join(os.Setenv(env.Socket, socket), os.Setenv(env.ServerPID, strconv.Itoa(os.Getpid())))
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
