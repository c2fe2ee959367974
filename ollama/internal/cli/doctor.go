package cli

import (
	"context"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/pb"
)

func doctorCommand() *cobra.Command {
	var request pb.DoctorRequest
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
			return doctor(cmd.Context(), control.FromEnvironment(), &request, screenOf(cmd))
		},
	}
	cmd.Flags().StringVar(&request.Rendezvous, "rendezvous", "", "Measure against the rendezvous at `ADDRESS` (default $KAFILA_RENDEZVOUS)")
	addJSON(cmd)
	return cmd
}

func doctor(ctx context.Context, c *control.Client, request *pb.DoctorRequest, s screen) error {
	var reply pb.DoctorReply
	stop := s.spin("looking at the network")
	err := c.Post(ctx, "doctor", request, &reply)
	stop()
	if err != nil {
		return err
	}
	return s.show(&reply, func() string { return reply.Text })
}
