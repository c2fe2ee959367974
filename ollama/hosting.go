package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"kafila/ollama/pb"
)

// What the host can do: start, and decide who may join and who stays.

func startCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "start [SESSION]",
		Short: "Go on with the members that are there",
		Long: "Ends the waiting for members that don't come. Whoever comes later can ask the model at once, and holds a part\n" +
			"when the session is next planned. Only the host can start.",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control, name string) error {
			var session pb.Session
			if err := c.post(ctx, "start", &pb.SessionRequest{Session: name}, &session); err != nil {
				return err
			}
			formed, err := untilReady(ctx, c, session.Id, newDisplay(asJSON))
			if err == nil && !asJSON {
				fmt.Fprintln(os.Stderr, readyText(formed))
			}
			return err
		}),
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func codeCommand() *cobra.Command {
	var fresh, asJSON bool
	cmd := &cobra.Command{
		Use:   "code [SESSION]",
		Short: "Print a session's code, or make a new one",
		Long: "With --new the old code is good for nothing from then on, and joining goes on if wrong guesses had paused it.\n" +
			"Members stay members. Only the host can make a new one.",
		Example: "  ollama session code\n" +
			"  ollama session code --new",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control, name string) error {
			if fresh {
				return newCode(ctx, c, name, asJSON)
			}
			return tellCode(ctx, c, name, asJSON)
		}),
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "Make a new code; the old one is dead, members stay")
	addJSON(cmd, &asJSON)
	return cmd
}

func newCode(ctx context.Context, c *control, name string, asJSON bool) error {
	var session pb.Session
	if err := c.post(ctx, "code", &pb.SessionRequest{Session: name}, &session); err != nil {
		return err
	}
	if session.Joining == "unreachable" {
		return told(asJSON, &session, session.Code, "The old code is dead from now on. Joining is "+joiningText(session.Joining)+".")
	}
	return told(asJSON, &session, session.Code, "The old code is dead from now on; members stay.\n"+invitation(&session))
}

func tellCode(ctx context.Context, c *control, name string, asJSON bool) error {
	var session pb.Session
	if err := c.get(ctx, "status", url.Values{"session": {name}}, &session); err != nil {
		return err
	}
	switch {
	case session.Code == "":
		return fmt.Errorf("only the host, %s, knows this session's code: ask there", session.Host)
	case session.Host != session.Self:
		return told(asJSON, &session, session.Code,
			fmt.Sprintf("This is the code that was typed here. The host, %s, may have made a new one since.", session.Host))
	case session.Joining != "" && session.Joining != "open":
		return told(asJSON, &session, session.Code, "Nobody can join with it now: "+joiningText(session.Joining)+".")
	}
	return told(asJSON, &session, session.Code, invitation(&session))
}

func lockCommand() *cobra.Command {
	return lockingCommand(true, &cobra.Command{
		Use:   "lock [SESSION]",
		Short: "Take no more members",
		Long:  "From now on nobody joins, with whatever code; members stay. Only the host can lock and unlock.",
	})
}

func unlockCommand() *cobra.Command {
	return lockingCommand(false, &cobra.Command{
		Use:   "unlock [SESSION]",
		Short: "Take members again",
		Long:  "Ends `ollama session lock`: who has the code can join. Only the host can lock and unlock.",
	})
}

func lockingCommand(locked bool, cmd *cobra.Command) *cobra.Command {
	var asJSON bool
	cmd.Args = arguments(0, 1)
	cmd.RunE = onSession(func(ctx context.Context, c *control, name string) error {
		var session pb.Session
		if err := c.post(ctx, "lock", &pb.LockRequest{Session: name, Locked: locked}, &session); err != nil {
			return err
		}
		return told(asJSON, &session, "", "Joining is "+joiningText(session.Joining)+".")
	})
	addJSON(cmd, &asJSON)
	return cmd
}

func kickCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "kick NAME [SESSION]",
		Short: "Remove a member for good",
		Long: "NAME is as in `ollama session status`. The others get new keys, the session a new code, which is printed, and the\n" +
			"ring is planned again without that member. Only the host can remove members.",
		Example: "  ollama session kick mini",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onSession(func(ctx context.Context, c *control, name string) error {
				return kick(ctx, c, name, args[0], asJSON)
			})(cmd, args[1:])
		},
	}
	addJSON(cmd, &asJSON)
	return cmd
}

func kick(ctx context.Context, c *control, name, member string, asJSON bool) error {
	if member == "" {
		return errors.New("the member's name is empty: `ollama session status` shows the names")
	}
	var session pb.Session
	if err := c.post(ctx, "kick", &pb.KickRequest{Session: name, Member: member}, &session); err != nil {
		return err
	}
	return told(asJSON, &session, session.Code,
		member+" is removed. The old code is dead from now on; the others stay.\n"+invitation(&session))
}

// told prints what others can use on standard output, such as a code, and what people want to know on standard error;
// for a program the session alone.
func told(asJSON bool, session *pb.Session, result, sentence string) error {
	if asJSON {
		writeMessage(os.Stdout, session)
		return nil
	}
	if result != "" {
		fmt.Println(result)
	}
	_, err := fmt.Fprintln(os.Stderr, sentence)
	return err
}

// joiningText tells whether somebody can join now and, if not, what changes that.
func joiningText(joining string) string {
	switch joining {
	case "locked":
		return "locked: `ollama session unlock` lets members in again"
	case "unreachable":
		return "impossible while the rendezvous does not answer; if it does not come back, only a new session takes new members"
	case "paused":
		return "paused, since the code was guessed wrongly too often: `ollama session code --new` goes on with a new one"
	}
	return joining
}
