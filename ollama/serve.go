package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ollama/ollama/api"
	"github.com/ollama/ollama/envconfig"
	"github.com/ollama/ollama/logutil"
	"github.com/ollama/ollama/ml"
)

type runE func(*cobra.Command, []string) error

// serveWith runs the stock server with a sidecar beside it and the session routes in front of its own.
func serveWith(original runE) runE {
	return func(cmd *cobra.Command, args []string) error {
		slog.SetDefault(logutil.NewLogger(os.Stderr, envconfig.LogLevel()))
		if err := portIsFree(envconfig.Host().Host); err != nil {
			return err
		}
		useInstalledLibraries()
		adoptScheduler()
		s, err := newSidecar(findSidecar)
		if err != nil {
			return err
		}
		defer s.close()
		if err := tellRunners(s.socket); err != nil {
			return err
		}

		ctx, cancel := context.WithCancel(cmd.Context())
		models := newSessionModels(ctx, s.client, &store{client: api.NewClient(envconfig.Host(), http.DefaultClient)})
		http.Handle("/api/session/", sessionRoutes(s, models))
		var running sync.WaitGroup
		running.Add(1)
		go func() {
			defer running.Done()
			s.run(ctx, func() { go models.reconcile() })
		}()
		err = original(cmd, args)
		cancel()
		running.Wait()
		return err
	}
}

// tellRunners leaves in the environment what the runners that the scheduler starts have to know.
func tellRunners(socket string) error {
	return errors.Join(os.Setenv(socketVariable, socket), os.Setenv(serverPidVariable, strconv.Itoa(os.Getpid())))
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

// useInstalledLibraries lends local models the GPU code of an installed Ollama, since a build of our own has none.
func useInstalledLibraries() {
	if hasLibraries(ml.LibOllamaPath) {
		return
	}
	for _, folder := range []string{
		"/usr/local/lib/ollama", "/usr/lib/ollama", "/opt/homebrew/opt/ollama/lib/ollama", "/opt/homebrew/lib/ollama",
		"/Applications/Ollama.app/Contents/Resources",
	} {
		if hasLibraries(folder) {
			ml.LibOllamaPath = folder
			slog.Info("local_models", "libraries", folder)
			return
		}
	}
	if runtime.GOOS != "darwin" { // Metal is compiled in there
		slog.Info("local_models", "gpu", false, "reason", "no installed Ollama with lib/ollama was found: local models run on plain CPU code, slowly")
	}
}

// hasLibraries is true for a folder with ggml's loadable back ends, in itself or one level below.
func hasLibraries(folder string) bool {
	for _, pattern := range []string{"*ggml-*", filepath.Join("*", "*ggml-*")} {
		if found, err := filepath.Glob(filepath.Join(folder, pattern)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
