package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/pb"
)

const sessionHelp = `A session runs one model on the machines of people who trust one another.

One machine opens it and reads the code aloud:
  ollama session create Qwen/Qwen3-8B --members 3
The others join with that code and chat:
  ollama run --session 7-ocean-velvet-lamp "What is the capital of France?"

Everyone needs a running server (ollama serve). What you lend is said and asked before anything is downloaded.`

// sessionCommand is `ollama session …`; heartbeat is stock's check that the server runs.
func sessionCommand(heartbeat runE) *cobra.Command {
	session := &cobra.Command{Use: "session", Short: "Run a model together with other machines", Long: sessionHelp,
		PersistentPreRunE: heartbeat}
	session.AddCommand(createCommand(), joinCommand(), startCommand(), statusCommand(), planCommand(), leaveCommand(), listCommand())
	return session
}

func addJSON(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "Print JSON for programs, one object a line")
}

func createCommand() *cobra.Command {
	var request pb.CreateSessionRequest
	var memory string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create MODEL",
		Short: "Open a session, print its code, and wait for the members",
		Long: "MODEL is a Hugging Face repository (safetensors) or a local folder. The code comes first on standard output;\n" +
			"then it is told who comes and what goes on, until the model answers. Ctrl-C stops the telling, not the session.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if request.MemoryBytes, err = parseBytes(memory); err != nil {
				return err
			}
			if request.Model, err = modelArgument(args[0]); err != nil {
				return err
			}
			return create(cmd.Context(), newControl(), &request, newDisplay(asJSON), asJSON)
		},
	}
	flags := cmd.Flags()
	flags.Uint32Var(&request.Members, "members", 0, "How many members to wait for, this machine included (default: until 'ollama session start')")
	flags.Uint32Var(&request.ContextTokens, "context", 0, "Tokens of context for each sequence (default 4096, or the model's own if smaller)")
	flags.Uint32Var(&request.Concurrency, "concurrency", 0, "Sequences at once (default 1)")
	flags.StringVar(&memory, "memory", "", "The most memory that this machine lends, such as 12GB (default: what is usable)")
	flags.StringVar(&request.Strategy, "strategy", "", "How blocks are divided: kafila, memory, uniform (default kafila)")
	flags.StringVar(&request.Objective, "objective", "", "What the plan is best at: paper, latency, throughput (default: latency for one sequence, else throughput)")
	flags.StringSliceVar(&request.Require, "require", nil, "Members that must hold a part, by name; 'all' for everybody")
	flags.StringSliceVar(&request.Exclude, "exclude", nil, "Members that must not hold a part, by name")
	flags.StringVar(&request.Rendezvous, "rendezvous", "", "host:port of the rendezvous (default $KAFILA_RENDEZVOUS, else one within this server)")
	flags.StringVar(&request.Name, "name", "", "This machine's name in the session (default: its host name)")
	addJSON(cmd, &asJSON)
	return cmd
}

// modelArgument leaves a repository's id as it is and makes a folder's path absolute, since the server has its own
// working directory.
func modelArgument(model string) (string, error) {
	if strings.HasPrefix(model, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		model = filepath.Join(home, model[2:])
	}
	_, err := os.Stat(filepath.Join(model, "config.json"))
	if err == nil {
		return filepath.Abs(model)
	}
	if filepath.IsAbs(model) || strings.HasPrefix(model, ".") {
		return "", fmt.Errorf("%s is no model folder: it has no config.json", model)
	}
	return model, nil
}

func create(ctx context.Context, c *control, request *pb.CreateSessionRequest, d display, asJSON bool) error {
	var session pb.Session
	if err := c.post(ctx, "create", request, &session); err != nil {
		d.stop()
		return err
	}
	if !asJSON {
		fmt.Println(session.Code)
		fmt.Fprintln(os.Stderr, invitation(&session))
	}
	formed, err := untilReady(ctx, c, session.Id, d)
	if err != nil {
		return err
	}
	if !asJSON {
		fmt.Fprintf(os.Stderr, "Ready. Chat with: ollama run %s\n", formed.Vehicle.GetName())
	}
	return nil
}

func invitation(session *pb.Session) string {
	text := "On the other machines: ollama run --session " + session.Code
	if session.RendezvousNote != "" {
		text += "\n" + session.RendezvousNote
	}
	return text
}

func joinCommand() *cobra.Command {
	var with joining
	cmd := &cobra.Command{
		Use:   "join CODE",
		Short: "Take part in a session and wait until it is ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			session, err := join(cmd.Context(), newControl(), args[0], with)
			if err == nil && !with.asJSON {
				fmt.Fprintf(os.Stderr, "Ready. Chat with: ollama run %s\n", session.Vehicle.GetName())
			}
			return err
		},
	}
	with.addFlags(cmd, "")
	addJSON(cmd, &with.asJSON)
	return cmd
}

func startCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "start [SESSION]",
		Short: "Go on with the members that are there",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := newControl()
			name, err := sessionArgument(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			var session pb.Session
			if err := c.post(cmd.Context(), "start", &pb.SessionRequest{Session: name}, &session); err != nil {
				return err
			}
			_, err = untilReady(cmd.Context(), c, session.Id, newDisplay(asJSON))
			return err
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func leaveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "leave [SESSION]",
		Short: "Leave a session; the last member's leaving closes it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := newControl()
			name, err := sessionArgument(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			return c.post(cmd.Context(), "leave", &pb.SessionRequest{Session: name}, &pb.LeaveSessionReply{})
		},
	}
}

func statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [SESSION]",
		Short: "Show who holds what, how members are connected, and predicted beside measured times",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := newControl()
			name, err := sessionArgument(cmd.Context(), c, args)
			if err != nil {
				return err
			}
			var session pb.Session
			if err := c.get(cmd.Context(), "status", url.Values{"session": {name}}, &session); err != nil {
				return err
			}
			return show(asJSON, &session, func() string { return statusText(&session) })
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the sessions that this machine is in",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all pb.ListSessionsReply
			if err := newControl().get(cmd.Context(), "list", nil, &all); err != nil {
				return err
			}
			return show(asJSON, &all, func() string { return listText(all.Sessions) })
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

// sessionArgument is what the person named, or the only session that there is.
func sessionArgument(ctx context.Context, c *control, args []string) (string, error) {
	if len(args) == 1 {
		if args[0] == "" {
			return "", errors.New("the session's name is empty")
		}
		return args[0], nil
	}
	session, err := c.only(ctx)
	if err != nil {
		return "", err
	}
	return session.Id, nil
}

// show prints a message for a program or, as text, for a person.
func show(asJSON bool, message proto.Message, text func() string) error {
	if asJSON {
		writeMessage(os.Stdout, message)
		return nil
	}
	_, err := fmt.Print(text())
	return err
}
