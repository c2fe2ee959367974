package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"kafila/ollama/pb"
)

func planCommand() *cobra.Command {
	var request pb.PlanRequest
	var asJSON bool
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
			c := newControl()
			if err := planSubject(cmd.Context(), c, args, &request); err != nil {
				return err
			}
			return showPlan(cmd.Context(), c, &request, asJSON)
		},
	}
	cmd.Flags().Uint32Var(&request.ContextTokens, "context", 0, "For a model: `TOKENS` of context for each sequence (default 4096)")
	cmd.Flags().Uint32Var(&request.Concurrency, "concurrency", 0, "For a model: room for `N` sequences at once (default 1)")
	addJSON(cmd, &asJSON)
	return cmd
}

func showPlan(ctx context.Context, c *control, request *pb.PlanRequest, asJSON bool) error {
	var reply pb.PlanReply
	stop := spin("measuring and planning")
	err := c.post(ctx, "plan", request, &reply)
	stop()
	if err != nil {
		return err
	}
	text, refused := planText(&reply)
	if refused != nil && !asJSON {
		return refused
	}
	if request.Model != "" {
		text = "On this machine alone:\n\n" + text
	}
	return errors.Join(show(asJSON, &reply, func() string { return text }), refused)
}

// planSubject takes the argument for a session if there is one of that name, else for a model.
func planSubject(ctx context.Context, c *control, args []string, request *pb.PlanRequest) error {
	var err error
	if request.Session, err = plannedSession(ctx, c, args); err != nil {
		return err
	}
	if request.Session == "" {
		request.Model, err = modelArgument(args[0])
		return err
	}
	if request.ContextTokens != 0 || request.Concurrency != 0 {
		return errors.New("a session's context and concurrency are what it was created with: --context and --concurrency are for a model")
	}
	return nil
}

// plannedSession is the id of the session that is meant, or "" if the argument names none.
func plannedSession(ctx context.Context, c *control, args []string) (string, error) {
	if len(args) == 0 {
		session, err := c.only(ctx)
		return session.GetId(), err
	}
	return sessionCalled(ctx, c, args[0])
}

// sessionCalled is the id of the session that a person calls so, or "" where there is none.
func sessionCalled(ctx context.Context, c *control, name string) (string, error) {
	open, err := c.open(ctx)
	if err != nil {
		return "", err
	}
	for _, session := range open {
		if names(session, name) {
			return session.Id, nil
		}
	}
	return "", nil
}

// names is true if a person may have meant this session: by its id, its code with or without the rendezvous' address,
// or the code's number.
func names(session *pb.Session, name string) bool {
	number, _, _ := strings.Cut(session.Code, "-")
	return name != "" && (name == session.Id || name == number || spoken(name) == spoken(session.Code))
}
