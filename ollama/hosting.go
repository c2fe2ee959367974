package main

import (
	"context"

	"github.com/spf13/cobra"

	"kafila/ollama/pb"
)

func startCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "start [SESSION]",
		Short: "Go on with the members that are there",
		Long: "Ends the waiting for members that don't come. Whoever comes later can ask the model at once, and holds a part\n" +
			"when the session is next planned. Only the host can start.",
		Args: cobra.MaximumNArgs(1),
		RunE: onSession(func(ctx context.Context, c *control, name string) error {
			var session pb.Session
			if err := c.post(ctx, "start", &pb.SessionRequest{Session: name}, &session); err != nil {
				return err
			}
			_, err := untilReady(ctx, c, session.Id, newDisplay(asJSON))
			return err
		}),
	}
	addJSON(cmd, &asJSON)
	return cmd
}
