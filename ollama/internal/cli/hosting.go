package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

// What the host can do: start, and decide who may join and who stays.

func startCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "start [SESSION]",
		Short: "Go on with the members that are there",
		Long: "Ends the waiting for members that don't come. Whoever comes later can ask the model at once, and holds a part\n" +
			"when the session is next planned. Only the host can start.",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			var session pb.Session
			if err := c.Post(ctx, "start", &pb.SessionRequest{Session: name}, &session); err != nil {
				return err
			}
			formed, err := untilReady(ctx, c, session.Id, s.display())
			if err == nil {
				s.ready(formed)
			}
			return err
		}),
	}
	addJSON(cmd)
	return cmd
}

func codeCommand() *cobra.Command {
	var fresh bool
	cmd := &cobra.Command{
		Use:   "code [SESSION]",
		Short: "Print a session's code, or make a new one",
		Long: "With --new the old code is good for nothing from then on, and joining goes on if wrong guesses had paused it.\n" +
			"Members stay members. Only the host can make a new one.",
		Example: "  ollama session code\n" +
			"  ollama session code --new",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			if fresh {
				return newCode(ctx, c, name, s)
			}
			return tellCode(ctx, c, name, s)
		}),
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "Make a new code; the old one is dead, members stay")
	addJSON(cmd)
	return cmd
}

func newCode(ctx context.Context, c *control.Client, name string, s screen) error {
	var session pb.Session
	if err := c.Post(ctx, "code", &pb.SessionRequest{Session: name}, &session); err != nil {
		return err
	}
	if session.Joining == "unreachable" {
		return s.tell(&session, session.Code, "The old code is dead from now on. Joining is "+text.Joining(session.Joining)+".")
	}
	return s.tell(&session, session.Code, "The old code is dead from now on; members stay.\n"+text.Invitation(&session))
}

func tellCode(ctx context.Context, c *control.Client, name string, s screen) error {
	var session pb.Session
	if err := c.Get(ctx, "status", url.Values{"session": {name}}, &session); err != nil {
		return err
	}
	switch {
	case session.Code == "" && session.Host == session.Self:
		return errors.New("the rendezvous has forgotten this session, so its code is dead: nobody can join until it has another one")
	case session.Code == "":
		return fmt.Errorf("only the host, %s, knows this session's code: ask there", session.Host)
	case session.Host != session.Self:
		return s.tell(&session, session.Code,
			fmt.Sprintf("This is the code that was typed here. The host, %s, may have made a new one since.", session.Host))
	case session.Joining != "" && session.Joining != "open":
		return s.tell(&session, session.Code, "Nobody can join with it now: "+text.Joining(session.Joining)+".")
	}
	return s.tell(&session, session.Code, text.Invitation(&session))
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
	cmd.Args = arguments(0, 1)
	cmd.RunE = onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
		var session pb.Session
		if err := c.Post(ctx, "lock", &pb.LockRequest{Session: name, Locked: &locked}, &session); err != nil {
			return err
		}
		return s.tell(&session, "", "Joining is "+text.Joining(session.Joining)+".")
	})
	addJSON(cmd)
	return cmd
}

func kickCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kick NAME [SESSION]",
		Short: "Remove a member for good",
		Long: "NAME is as in `ollama session status`. The others get new keys, the session a new code, which is printed, and the\n" +
			"ring is planned again without that member. Only the host can remove members.",
		Example: "  ollama session kick mini",
		Args:    arguments(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
				return kick(ctx, c, name, args[0], s)
			})(cmd, args[1:])
		},
	}
	addJSON(cmd)
	return cmd
}

func kick(ctx context.Context, c *control.Client, name, member string, s screen) error {
	if member == "" {
		return errors.New("the member's name is empty: `ollama session status` shows the names")
	}
	var session pb.Session
	if err := c.Post(ctx, "kick", &pb.KickRequest{Session: name, Member: member}, &session); err != nil {
		return err
	}
	return s.tell(&session, session.Code,
		member+" is removed. The old code is dead from now on; the others stay.\n"+text.Invitation(&session))
}
