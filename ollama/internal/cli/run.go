package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/headway"
	"kafila/ollama/internal/sessionapi"
)

const runExamples = `  # a model on this machine
  ollama run qwen3

  # the model of a session: joins it if need be, then chats
  ollama run --session 7-ocean-velvet-lamp

  # one answer, without being asked whether to join
  ollama run --session 7-ocean-velvet-lamp --yes "What is the capital of France?"`

// addSessionFlags gives stock's `run` its --session: join if need be, then the same chat with the session's model.
func addSessionFlags(run *cobra.Command) {
	var code string
	var with joining
	original, stockArgs := run.RunE, run.Args
	run.Use, run.Example = "run MODEL|--session CODE [PROMPT]", runExamples
	run.Flags().StringVar(&code, "session", "", "Run the model of the session with this `CODE`; join it if need be")
	with.addFlags(run, "With --session: ")
	appendVariables(run, sessionVariables[1:])
	run.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("session") {
			return nil
		}
		return stockArgs(cmd, args)
	}
	run.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("session") {
			if err := checkMembership(cmd.Context(), control.FromEnvironment(), args); err != nil {
				return err
			}
			converse(cmd, args[min(1, len(args)):])
			return original(cmd, args)
		}
		session, err := join(cmd.Context(), control.FromEnvironment(), code, with, screenOf(cmd))
		if err != nil {
			return err
		}
		converse(cmd, args)
		return original(cmd, append([]string{session.Vehicle.GetName()}, args...))
	}
}

// converse shows a person at a terminal how far an answer is, and has stock's prompt, where one is at that, survive what a
// session's model can't answer.
func converse(cmd *cobra.Command, prompt []string) {
	if !isTerminal(cmd.OutOrStdout()) {
		return
	}
	way := http.DefaultTransport
	if isTerminal(cmd.ErrOrStderr()) {
		way = headway.Following{Below: way, Tells: cmd.ErrOrStderr(), Patience: headway.Patience}
	}
	if len(prompt) == 0 && isTerminal(cmd.InOrStdin()) {
		way = conversation{way, cmd.ErrOrStderr()}
	}
	http.DefaultClient.Transport = way
}

// checkMembership refuses the model of a session that this machine is not in: stock would try to pull it. Another user of
// the machine, who may not know of sessions but ask their models as any, hears from the server.
func checkMembership(ctx context.Context, c *control.Client, args []string) error {
	if len(args) == 0 || !sessionapi.IsModel(args[0]) {
		return nil
	}
	session, err := sessionOfModel(ctx, c, args[0])
	var stranger control.NotOwner
	switch {
	case errors.As(err, &stranger):
		return nil
	case err == nil && session == nil:
		err = fmt.Errorf("this machine is not in the session of %s (any more): join it with its code, ollama run --session CODE", args[0])
	}
	return err
}
