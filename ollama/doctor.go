package main

import (
	"context"

	"github.com/spf13/cobra"

	"kafila/ollama/pb"
)

func doctorCommand() *cobra.Command {
	var request pb.DoctorRequest
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine's network does, and what to change",
		Long: "Measures for a few seconds: this machine's addresses, whether UDP passes, what its router does, which members it\n" +
			"reaches directly and which through the relay, and who could reach a rendezvous here. Needs no session and\n" +
			"changes nothing. Findings that are no good are no failure: the exit status is 0.",
		Example: "  ollama session doctor\n" +
			"  ollama session doctor --rendezvous rendezvous.example.org:7770",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return doctor(cmd.Context(), newControl(), &request, asJSON)
		},
	}
	cmd.Flags().StringVar(&request.Rendezvous, "rendezvous", "", "Measure against the rendezvous at `ADDRESS` (default $KAFILA_RENDEZVOUS)")
	addJSON(cmd, &asJSON)
	return cmd
}

func doctor(ctx context.Context, c *control, request *pb.DoctorRequest, asJSON bool) error {
	var reply pb.DoctorReply
	stop := spin("looking at the network")
	err := c.post(ctx, "doctor", request, &reply)
	stop()
	if err != nil {
		return err
	}
	return show(asJSON, &reply, func() string { return reply.Text })
}
