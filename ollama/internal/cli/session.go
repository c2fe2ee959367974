package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

const sessionHelp = `A session runs one model on the machines of people who trust one another, each of which holds some of its layers.

One machine opens it and reads the code aloud. The others run it with that code: they are told what they would lend
and download, and asked, before anything happens. Every machine needs a running server (ollama serve). Where a command
takes a SESSION, its code, the code's number or its id will do, and the only session needs no name.`

const sessionExamples = `  # on one machine
  ollama session create Qwen/Qwen3-8B --members 3

  # on the two others
  ollama run --session 7-ocean-velvet-lamp "What is the capital of France?"

  # who holds what, and how fast it is
  ollama session status`

// sessionCommand is `ollama session …`; heartbeat is stock's check that the server runs.
func sessionCommand(heartbeat runE) *cobra.Command {
	session := &cobra.Command{
		Use: "session", Short: "Run a model together with other machines", Long: sessionHelp, Example: sessionExamples,
		Args:              onlyCommands,
		PersistentPreRunE: heartbeat,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	session.AddCommand(
		createCommand(), joinCommand(), startCommand(), codeCommand(), lockCommand(), unlockCommand(), kickCommand(), replanCommand(),
		statusCommand(), traceCommand(), logsCommand(), reportCommand(), pageCommand(), planCommand(), doctorCommand(), rendezvousCommand(), leaveCommand(), listCommand(), modelsCommand(), weightsCommand(),
	)
	for _, command := range session.Commands() {
		appendVariables(command, sessionVariables)
	}
	session.SetFlagErrorFunc(flagError)
	return session
}

// arguments takes between least and most of them, and otherwise says how the command is written.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

func addJSON(cmd *cobra.Command) {
	cmd.Flags().Bool("json", false, "Print JSON for programs, one object a line")
}

func leaveCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "leave [SESSION]",
		Short: "Leave a session; the last member's leaving closes it",
		Long: "Frees what this machine lent. The others plan again without it. While answers run they do so first, for a minute at\n" +
			"most, so that the answers go on; Ctrl-C, or the same command once more, leaves at once.",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			var session pb.Session
			if err := c.Get(ctx, "status", url.Values{"session": {name}}, &session); err != nil {
				return err
			}
			return leave(ctx, c, &session, yes, s)
		}),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "Leave without asking, even if the session ends for the others")
	addJSON(cmd)
	return cmd
}

// leave leaves a session and tells what stays on the disk. Not to know that is no failure: the session is left.
func leave(ctx context.Context, c *control.Client, session *pb.Session, yes bool, s screen) error {
	if session.ActiveSequences > 0 && len(session.Members) != 1 {
		s.say("Answers run: the others take over this machine's part first, for a minute at most. Ctrl-C leaves at once.")
	}
	var left pb.LeaveSessionReply
	if err := c.Post(ctx, "leave", &pb.LeaveRequest{Session: session.Id}, &left); err != nil {
		return err
	}
	if left.KeptBack != "" {
		if err := leaveAllTheSame(ctx, c, session, left.KeptBack, yes, s); err != nil {
			return err
		}
	}
	s.done(&pb.LeaveSessionReply{}, "This machine has left the session; what it lent is free again.")
	if err := tellWhatStays(ctx, c, session, s); err != nil {
		slog.Debug("weights_not_told", "error", err)
	}
	return nil
}

// leaveAllTheSame asks first: the others can't go on without this machine.
func leaveAllTheSame(ctx context.Context, c *control.Client, session *pb.Session, why string, yes bool, s screen) error {
	command := "ollama session leave --yes " + sessionapi.Title(session)
	whetherToLeave := question{
		asks:     why + ". Leave all the same?",
		unasked:  why + ": " + command + " leaves all the same",
		declined: "not left: " + command + " does it",
	}
	if err := whetherToLeave.put(yes, s.in, s.aside); err != nil {
		return err
	}
	return c.Post(ctx, "leave", &pb.LeaveRequest{Session: session.Id, AtOnce: true}, &pb.LeaveSessionReply{})
}

// onSession is a command whose only argument, if any, names a session.
func onSession(act func(ctx context.Context, c *control.Client, name string, s screen) error) runE {
	return func(cmd *cobra.Command, args []string) error {
		c := control.FromEnvironment()
		name, err := sessionArgument(cmd.Context(), c, args)
		if err != nil {
			return err
		}
		return act(cmd.Context(), c, name, screenOf(cmd))
	}
}

// sessionArgument is what the person named, or the only session that there is.
func sessionArgument(ctx context.Context, c *control.Client, args []string) (string, error) {
	if len(args) == 1 {
		if args[0] == "" {
			return "", errors.New("the session's name is empty")
		}
		return args[0], nil
	}
	session, err := c.Only(ctx)
	if err != nil {
		return "", err
	}
	return session.Id, nil
}
