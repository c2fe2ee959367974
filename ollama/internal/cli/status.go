package cli

import (
	"context"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

func statusCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [SESSION]",
		Short: "Show who holds what, how members are connected, and predicted beside measured times",
		Args:  arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			if watch {
				return watchStatus(ctx, c, name, s)
			}
			session, err := statusOf(ctx, c, name)
			if err != nil {
				return err
			}
			return s.show(session, func() string { return text.Status(session, widthOf(s.out)) })
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "Show it anew each second, until Ctrl-C or the session's end")
	addJSON(cmd)
	return cmd
}

func statusOf(ctx context.Context, c *control.Client, name string) (*pb.Session, error) {
	var session pb.Session
	err := c.Get(ctx, "status", url.Values{"session": {name}}, &session)
	return &session, err
}

const watchInterval = time.Second

// watchStatus shows a session's status each second, in place of the one before where a person looks.
func watchStatus(ctx context.Context, c *control.Client, name string, s screen) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	ticks := time.NewTicker(watchInterval)
	defer ticks.Stop()
	for {
		session, err := statusOf(ctx, c, name)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := s.show(session, func() string { return s.inPlace(text.Status(session, widthOf(s.out))) }); err != nil {
			return err
		}
		if session.State == sessionapi.Closed {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// inPlace is a text that is written over the one before, on a terminal; elsewhere an empty line parts them.
func (s screen) inPlace(text string) string {
	if !isTerminal(s.out) {
		return text + "\n"
	}
	const home, restOfLine, restOfScreen = "\x1b[H", "\x1b[K", "\x1b[J"
	return home + strings.ReplaceAll(text, "\n", restOfLine+"\n") + restOfScreen
}

func listCommand() *cobra.Command {
	cmd := listingCommand("list", "List the sessions that this machine is in",
		func(all *pb.ListSessionsReply) string { return text.Sessions(all.Sessions) })
	cmd.Aliases = []string{"ls"}
	return cmd
}

func modelsCommand() *cobra.Command {
	cmd := listingCommand("models", "List the models that have short names, and what they need",
		func(all *pb.ListModelsReply) string { return text.Models(all.Models) })
	cmd.Long = "What each of one to four equal machines needs is a size, no promise: `ollama session plan MODEL` measures. Models\n" +
		"without a short name are called by their repository at the Hugging Face Hub."
	return cmd
}

// listingCommand shows what the route of its name answers, to which nothing has to be said.
func listingCommand[M proto.Message](name, short string, asText func(M) string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var none M
			all := none.ProtoReflect().New().Interface().(M)
			if err := control.FromEnvironment().Get(cmd.Context(), name, nil, all); err != nil {
				return err
			}
			return screenOf(cmd).show(all, func() string { return asText(all) })
		},
	}
	addJSON(cmd)
	return cmd
}
