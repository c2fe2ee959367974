// Kafila's fork of Ollama: the whole stock server and command line, and beside them the sessions of the sidecar. Not a
// line of upstream is copied or patched; what it exports is wrapped, and checked at the start to be what we expect.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ollama/ollama/cmd"
)

const exitInterrupted = 130 // as shells say it: 128 and the number of SIGINT

func main() {
	if len(os.Args) > 1 && os.Args[1] == "runner" {
		cobra.CheckErr(runRunner(os.Args[2:]))
		return
	}
	root, err := newCLI()
	cobra.CheckErr(err)
	err = root.ExecuteContext(context.Background())
	if stopped := interrupted(""); errors.As(err, &stopped) {
		fmt.Fprintln(os.Stderr, stopped)
		os.Exit(exitInterrupted)
	}
	cobra.CheckErr(err)
}

// newCLI is stock's command line with `run --session`, `session`, and a `serve` that has sessions.
func newCLI() (*cobra.Command, error) {
	root := cmd.NewCLI()
	run, err := stockCommand(root, "run", "keepalive", "verbose", "format", "think")
	if err != nil {
		return nil, err
	}
	serve, err := stockCommand(root, "serve")
	if err != nil {
		return nil, err
	}
	serve.RunE = serveWith(serve.RunE)
	appendVariables(serve, serveVariables)
	addSessionFlags(run)
	root.AddCommand(sessionCommand(run.PreRunE))
	return root, nil
}

// stockCommand finds a command of upstream's and makes sure that it still is as we wrap it, so that an upgrade of
// upstream fails at once and not in use.
func stockCommand(root *cobra.Command, name string, flags ...string) (*cobra.Command, error) {
	found, _, err := root.Find([]string{name})
	if err != nil || found.Name() != name || found.RunE == nil || found.Args == nil {
		return nil, fmt.Errorf("this build does not fit its Ollama: `%s` is not the command that it wraps", name)
	}
	for _, flag := range flags {
		if found.Flags().Lookup(flag) == nil {
			return nil, fmt.Errorf("this build does not fit its Ollama: `%s` has no --%s", name, flag)
		}
	}
	return found, nil
}
