package cli

import (
	"context"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// wrapRemove has stock's `rm` ask whether to leave the session whose model is named. What no session has is stock's.
func wrapRemove(rm *cobra.Command) {
	original := rm.RunE
	rm.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			session, err := sessionOfModel(cmd.Context(), control.FromEnvironment(), name)
			switch {
			case err != nil:
			case session == nil:
				err = original(cmd, []string{name})
			default:
				err = leaveInstead(cmd.Context(), control.FromEnvironment(), session, screenOf(cmd))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// sessionOfModel gives the session that this machine is in whose model is called so, or nil.
func sessionOfModel(ctx context.Context, c *control.Client, name string) (*pb.Session, error) {
	if !sessionapi.IsModel(name) {
		return nil, nil
	}
	open, err := c.Open(ctx)
	if err != nil {
		return nil, err
	}
	for _, session := range open {
		if sessionapi.SameModel(session.Vehicle.GetName(), name) {
			return session, nil
		}
	}
	return nil, nil
}

func leaveInstead(ctx context.Context, c *control.Client, session *pb.Session, s screen) error {
	command := "ollama session leave " + sessionapi.Title(session)
	whetherToLeave := question{
		asks:     session.Vehicle.GetName() + " is the model of a session, and goes when this machine leaves that. Leave?",
		unasked:  session.Vehicle.GetName() + " is the model of a session: " + command + " leaves that, and its model goes too",
		declined: "not left: " + command + " does it",
	}
	if err := whetherToLeave.put(false, s.in, s.aside); err != nil {
		return err
	}
	return leave(ctx, c, session, false, s)
}
