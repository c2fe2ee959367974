package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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
	leave := "ollama session leave " + sessionapi.Title(session)
	if !isTerminal(s.in) {
		return fmt.Errorf("%s is the model of a session: %s leaves that, and its model goes too", session.Vehicle.GetName(), leave)
	}
	fmt.Fprintf(s.aside, "%s is the model of a session, and goes when this machine leaves that. Leave? [y/N] ", session.Vehicle.GetName())
	if agreed, err := saysYes(s.in); err != nil {
		return err
	} else if !agreed {
		return errors.New("not left: " + leave + " does it")
	}
	if err := c.Post(ctx, "leave", &pb.SessionRequest{Session: session.Id}, &pb.LeaveSessionReply{}); err != nil {
		return err
	}
	return s.tell(nil, "", left)
}

// saysYes reads the answer to a question that is "no" unless somebody says otherwise.
func saysYes(from io.Reader) (bool, error) {
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}
