package cli

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [SESSION]",
		Short: "Show who holds what, how members are connected, and predicted beside measured times",
		Args:  arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			var session pb.Session
			if err := c.Get(ctx, "status", url.Values{"session": {name}}, &session); err != nil {
				return err
			}
			return s.show(&session, func() string { return text.Status(&session) })
		}),
	}
	addJSON(cmd)
	return cmd
}

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the sessions that this machine is in",
		Args:    arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all pb.ListSessionsReply
			if err := control.FromEnvironment().Get(cmd.Context(), "list", nil, &all); err != nil {
				return err
			}
			return screenOf(cmd).show(&all, func() string { return text.Sessions(all.Sessions) })
		},
	}
	addJSON(cmd)
	return cmd
}
