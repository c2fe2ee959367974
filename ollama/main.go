// Kafila's fork of Ollama: the whole stock server and command line, and beside them the sessions of the sidecar. Not a
// line of upstream is copied or patched; what it exports is wrapped, and checked at the start to be what we expect.
//
// Three programs are one file: the command line, the server (`serve`), and the runner that the server starts for each
// model. Each has its room below internal/, and imports go one way: this file knows the three, they know the smaller
// rooms, and none knows another of the three.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/background"
	"kafila/ollama/internal/called"
	"kafila/ollama/internal/cli"
	"kafila/ollama/internal/runner"
	"kafila/ollama/internal/server"
)

const exitInterrupted = 130 // as shells say it: 128 and the number of SIGINT

func main() {
	background.Restore()
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		cobra.CheckErr(runner.Run(os.Args[2:]))
		return
	}
	root, err := cli.New(server.Serve)
	cobra.CheckErr(err)
	err = root.ExecuteContext(context.Background())
	var interrupted cli.Interrupted
	if errors.As(err, &interrupted) {
		fmt.Fprintln(os.Stderr, called.Words(called.Name(), string(interrupted)))
		os.Exit(exitInterrupted)
	}
	if err != nil {
		cobra.CheckErr(called.Words(called.Name(), err.Error()))
	}
}
