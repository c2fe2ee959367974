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
			"when the session is next planned. Only the host can start. Where somebody looks at the plan, it takes that one.",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			var session pb.Session
			if err := c.Post(ctx, "start", &pb.SessionRequest{Session: name}, &session); err != nil {
				return err
			}
			if !s.canAsk() { // whoever opened it at a terminal would be waited for
				if err := c.Post(ctx, "choose", &pb.ChoosePlanRequest{Session: session.Id}, &session); err != nil {
					return err
				}
			}
			formed, err := untilReady(ctx, c, session.Id, s.displayWithPlan(ctx, c, s.canAsk()))
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
	return s.tell(&session, session.Code, "The old code is dead from now on; members stay.\n"+text.WayIn(&session, widthOf(s.aside)))
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
	}
	return s.tell(&session, session.Code, text.WayIn(&session, widthOf(s.aside)))
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

func replanCommand() *cobra.Command {
	said := map[string]*bool{"ask": new(bool), "auto": new(bool), "never": new(bool)}
	cmd := &cobra.Command{
		Use:   "replan [SESSION]",
		Short: "Take a better plan now, or say what to do with one",
		Long: "Without a flag the better plan that `ollama session status` tells of is taken now; answers that run go on through\n" +
			"the change. With a flag nothing changes now: from then on a better plan is told of (--ask), taken by itself when\n" +
			"it gains 10 %, or 30 % while answers run, and not twice within five minutes (--auto), or not looked at (--never).\n" +
			"Only the host can do either.",
		Example: "  ollama session replan\n" +
			"  ollama session replan --ask",
		Args: arguments(0, 1),
		RunE: onSession(func(ctx context.Context, c *control.Client, name string, s screen) error {
			for rule, isSaid := range said {
				if *isSaid {
					return setReplanning(ctx, c, name, rule, s)
				}
			}
			return replan(ctx, c, name, s)
		}),
	}
	cmd.Flags().BoolVar(said["ask"], "ask", false, "Tell of a better plan, and take none by itself")
	cmd.Flags().BoolVar(said["auto"], "auto", false, "Take a better plan when it gains enough")
	cmd.Flags().BoolVar(said["never"], "never", false, "Neither tell of a better plan nor take one")
	cmd.MarkFlagsMutuallyExclusive("ask", "auto", "never")
	addJSON(cmd)
	return cmd
}

func replan(ctx context.Context, c *control.Client, name string, s screen) error {
	var session pb.Session
	if err := c.Post(ctx, "replan", &pb.SessionRequest{Session: name}, &session); err != nil {
		return err
	}
	return s.tell(&session, "", "The session takes the better plan; answers go on in it.")
}

func setReplanning(ctx context.Context, c *control.Client, name, rule string, s screen) error {
	var session pb.Session
	if err := c.Post(ctx, "replanning", &pb.ReplanningRequest{Session: name, Replanning: rule}, &session); err != nil {
		return err
	}
	return s.tell(&session, "", "A better plan is "+text.Replanning(session.Replanning)+" from now on.")
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
	return s.tell(&session, session.Code, member+" is removed. The old code is dead from now on; the others stay.\n"+text.WayIn(&session, widthOf(s.aside)))
}
