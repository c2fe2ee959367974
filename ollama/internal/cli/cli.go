// Package cli is the command line: stock's own, with `session` and what sessions add to `run` and `serve`. It asks the
// server by control, and knows nothing of what the server does. It imports called, control, foreign, home, text, sessionapi, service,
// manual, env and version.
package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ollama/ollama/cmd"

	"kafila/ollama/internal/called"
	"kafila/ollama/internal/manual"
	"kafila/ollama/internal/version"
)

type runE func(*cobra.Command, []string) error

// New is stock's command line with `run --session`, `session`, an `rm` that leaves sessions, and a `serve` that has them. server gets what the
// stock server does, and runs it with the sessions' part beside it.
func New(server func(ctx context.Context, stock func() error) error) (*cobra.Command, error) {
	root := cmd.NewCLI()
	run, err := stockCommand(root, "run", "keepalive", "verbose", "format", "think")
	if err != nil {
		return nil, err
	}
	serve, err := stockCommand(root, "serve")
	if err != nil {
		return nil, err
	}
	remove, err := stockCommand(root, "rm")
	if err != nil {
		return nil, err
	}
	wrapRemove(remove)
	stock := serve.RunE
	serve.RunE = func(cmd *cobra.Command, args []string) error {
		return server(cmd.Context(), func() error { return stock(cmd, args) })
	}
	appendVariables(serve, serveVariables)
	addSessionFlags(run)
	root.AddCommand(sessionCommand(run.PreRunE), serviceCommand(), manualCommand(root))
	root.CompletionOptions.DisableDefaultCmd = false
	root.InitDefaultCompletionCmd()
	if err := colourMenus(root); err != nil {
		return nil, err
	}
	if err := addVersion(root); err != nil {
		return nil, err
	}
	callBy(root, called.Name())
	return root, nil
}

// callBy names the commands, also in their help and in what they print, as people call this program.
func callBy(root *cobra.Command, name string) {
	if name == called.Ollama {
		return
	}
	root.Use = name
	root.SetOut(called.Writer(name, os.Stdout))
	root.SetErr(called.Writer(name, os.Stderr))
}

// manualCommand is for packages; people don't see it.
func manualCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "manual FOLDER", Short: "Write manual pages, completions and the reference", Args: arguments(1, 1), Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			words := func(text string) string { return called.Words(root.Name(), text) }
			return manual.Write(root, args[0], version.Kafila, words)
		},
	}
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
