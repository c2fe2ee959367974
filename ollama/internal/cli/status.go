package cli

import (
	"context"
	"net/url"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

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
