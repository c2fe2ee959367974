package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

func planCommand() *cobra.Command {
	var request pb.PlanRequest
	cmd := &cobra.Command{
		Use:   "plan [SESSION|MODEL]",
		Short: "Show who would hold what, and how fast that would be, before anything is downloaded",
		Long: "The plan of a formed session, or of a model on this machine alone, with what it would be by each objective. What\n" +
			"does not fit is refused in words, with what would fit, and a non-zero exit status.",
		Example: "  # the session that this machine is in\n" +
			"  ollama session plan\n\n" +
			"  # would it fit here?\n" +
			"  ollama session plan Qwen/Qwen3-8B --context 8192 --concurrency 4",
		Args: arguments(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := control.FromEnvironment()
			if err := planSubject(cmd.Context(), c, args, &request); err != nil {
				return err
			}
			return showPlan(cmd.Context(), c, &request, screenOf(cmd))
		},
	}
	cmd.Flags().Uint32Var(&request.ContextTokens, "context", 0, "For a model: `TOKENS` of context for each sequence (default 4096)")
	cmd.Flags().Uint32Var(&request.Concurrency, "concurrency", 0, "For a model: room for `N` sequences at once (default 1)")
	addQuantize(cmd, &request.QuantizeBits, "For a model: ")
	addJSON(cmd)
	return cmd
}

func showPlan(ctx context.Context, c *control.Client, request *pb.PlanRequest, s screen) error {
	var reply pb.PlanReply
	stop := s.spin("measuring and planning")
	err := c.Post(ctx, "plan", request, &reply)
	stop()
	if err != nil {
		return err
	}
	plan, refused := text.Plan(&reply, widthOf(s.out))
	if refused != nil && !s.asJSON {
		return refused
	}
	if request.Model != "" {
		plan = "On this machine alone:\n\n" + plan
	}
	return errors.Join(s.show(&reply, func() string { return plan }), refused)
}

// planSubject takes the argument for a session if there is one of that name, else for a model.
func planSubject(ctx context.Context, c *control.Client, args []string, request *pb.PlanRequest) error {
	var err error
	if request.Session, err = plannedSession(ctx, c, args); err != nil {
		return err
	}
	if request.Session == "" {
		request.Model, err = modelArgument(args[0])
		return err
	}
	if request.ContextTokens != 0 || request.Concurrency != 0 || request.QuantizeBits != 0 {
		return errors.New("a session's terms are what it was created with: --context, --concurrency and --quantize are for a model")
	}
	return nil
}

// plannedSession is the id of the session that is meant, or "" if the argument names none.
func plannedSession(ctx context.Context, c *control.Client, args []string) (string, error) {
	if len(args) == 0 {
		session, err := c.Only(ctx)
		return session.GetId(), err
	}
	return c.Called(ctx, args[0])
}
