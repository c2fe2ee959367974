package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

func traceCommand() *cobra.Command {
	var request pb.TracesRequest
	cmd := &cobra.Command{
		Use:   "trace [REQUEST]",
		Short: "Show what a request took: its time line, and each stage and hop",
		Long: "The latest request, or the one of that number. The head of the ring keeps the records; another member knows the last\n" +
			"one that it was told of. With --json each is an object on a line of its own.",
		Example: "  # the latest\n" +
			"  ollama session trace\n\n" +
			"  # how quick were the last twenty?\n" +
			"  ollama session trace --last 20 --json | jq .tokens_per_s",
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				request.Request = args[0]
			}
			return trace(cmd.Context(), control.FromEnvironment(), &request, screenOf(cmd))
		},
	}
	cmd.Flags().StringVar(&request.Session, "session", "", "The `SESSION`, where this machine is in several")
	cmd.Flags().Uint32Var(&request.Most, "last", 1, "Show the latest `N`, at most 100")
	addJSON(cmd)
	return cmd
}

func trace(ctx context.Context, c *control.Client, request *pb.TracesRequest, s screen) error {
	if request.Session == "" {
		session, err := c.Only(ctx)
		if err != nil {
			return err
		}
		request.Session = session.Id
	}
	var reply pb.TracesReply
	if err := c.Post(ctx, "traces", request, &reply); err != nil {
		return err
	}
	shown := make([]string, 0, len(reply.RecordsJson))
	for _, record := range reply.RecordsJson {
		if s.asJSON {
			shown = append(shown, record+"\n")
			continue
		}
		told, err := text.Trace(record)
		if err != nil {
			return err
		}
		shown = append(shown, told)
	}
	between := "\n"
	if s.asJSON {
		between = ""
	}
	_, err := fmt.Fprint(s.out, strings.Join(shown, between))
	return err
}
