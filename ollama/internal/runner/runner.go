// Package runner is the process that the stock scheduler starts for every model: its own executable, us, as `runner …`,
// to which it talks over HTTP. For a session's model we answer that protocol (of Ollama 0.17.4) by passing each
// completion to the sidecar; any other model gets stock's own runner. It imports sidecar, stub, seal, envelope
// and env.
package runner

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/ollama/ollama/envconfig"
	"github.com/ollama/ollama/logutil"
	stock "github.com/ollama/ollama/runner"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/seal"
	"kafila/ollama/internal/sidecar"
	"kafila/ollama/internal/stub"
	"kafila/ollama/pb"
)

const parentPollInterval = 500 * time.Millisecond

// Run is the process that the scheduler starts; arguments are those after "runner".
func Run(args []string) error {
	go exitWithParent()
	model, port, err := runnerArguments(args)
	if err != nil {
		return err
	}
	marker, ok := stub.Read(model)
	if !ok {
		return stock.Execute(args)
	}
	if port == "" {
		return errors.New("the server started its runner without a port, which this build doesn't expect")
	}
	key, err := seal.Parse(os.Getenv(env.Seal))
	if err != nil || !marker.SealedBy(key) {
		return serve(port, refuser())
	}
	return serveProxy(marker.Session, port, key)
}

// runnerArguments picks out the model's path and the port. Image and MLX engines have arguments of their own and no
// model file; for them both are empty.
func runnerArguments(args []string) (model, port string, err error) {
	if len(args) > 0 && (args[0] == "--imagegen-engine" || args[0] == "--mlx-engine") {
		return "", "", nil
	}
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&model, "model", "", "")
	flags.StringVar(&port, "port", "", "")
	flags.Bool("ollama-engine", false, "")
	flags.Bool("verbose", false, "")
	if err := flags.Parse(args); err != nil {
		return "", "", fmt.Errorf("the server started its runner with arguments that this build doesn't know: %w", err)
	}
	return model, port, nil
}

// exitWithParent ends this process when the server that started it is gone; there is no portable signal for that.
func exitWithParent() {
	parent := os.Getppid()
	if pid, err := strconv.Atoi(os.Getenv(env.ServerPID)); err == nil {
		parent = pid
	}
	for range time.Tick(parentPollInterval) {
		if os.Getppid() != parent {
			os.Exit(0)
		}
	}
}

func serveProxy(session, port string, key seal.Key) error {
	conn, err := sidecar.Dial(os.Getenv(env.Socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	return serve(port, fromServerOnly(key, port, newProxy(session, pb.NewSidecarClient(conn), key)))
}

func serve(port string, handler http.Handler) error {
	slog.SetDefault(logutil.NewLogger(os.Stderr, envconfig.LogLevel()))
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return err
	}
	slog.Info("session_runner_started", "address", listener.Addr())
	return http.Serve(listener, handler)
}
