package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

// What a machine brings to a session, as flags of `run --session` and `session join`.
type joining struct {
	yes        bool
	memory     string
	spare      string
	name       string
	rendezvous string
}

func (j *joining) addFlags(cmd *cobra.Command, prefix string) {
	cmd.Flags().BoolVar(&j.yes, "yes", false, prefix+"Join without asking")
	cmd.Flags().StringVar(&j.memory, "memory", "", prefix+"Lend at most `SIZE` of this machine's memory, such as 12GB (default: what is usable)")
	addSpare(cmd, &j.spare, prefix)
	cmd.Flags().StringVar(&j.name, "name", "", prefix+"This machine's `NAME` in the session (default: its host name)")
	cmd.Flags().StringVar(&j.rendezvous, "rendezvous", "", prefix+"The rendezvous' `ADDRESS`, if the code doesn't carry it (default $KAFILA_RENDEZVOUS)")
}

const joinExamples = `  ollama session join 7-ocean-velvet-lamp

  # lend at most 12 GB, and agree beforehand
  ollama session join 7-ocean-velvet-lamp --memory 12GB --yes`

func joinCommand() *cobra.Command {
	var with joining
	cmd := &cobra.Command{
		Use:     "join CODE",
		Short:   "Take part in a session and wait until it is ready",
		Long:    "Says what this machine would lend and download, and asks. `ollama run --session CODE` does the same and then chats.",
		Example: joinExamples,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("session") {
				return nil
			}
			return arguments(1, 4)(cmd, args) // a code typed with spaces is four words
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			s := screenOf(cmd)
			session, err := join(cmd.Context(), control.FromEnvironment(), codeTyped(cmd, args), with, s)
			if err == nil {
				s.ready(session)
			}
			return err
		},
	}
	with.addFlags(cmd, "")
	cmd.Flags().String("session", "", "The `CODE`, where the whole line `ollama run --session CODE` is pasted behind join")
	if err := cmd.Flags().MarkHidden("session"); err != nil {
		panic(err) // it is defined above
	}
	addJSON(cmd)
	return cmd
}

// codeTyped is what was typed behind join: a code, or the whole line that another machine shows, with --session.
func codeTyped(cmd *cobra.Command, args []string) string {
	if pasted, err := cmd.Flags().GetString("session"); err == nil && pasted != "" {
		return pasted
	}
	return strings.Join(args, " ")
}

// addSpare adds the flag for what a machine fetches beyond its part.
func addSpare(cmd *cobra.Command, spare *string, prefix string) {
	cmd.Flags().StringVar(spare, "spare", "", prefix+"Fetch at most `SIZE` beyond this machine's part while idle, for the loss of others; 0 for nothing (default $KAFILA_SPARE, else a tenth of the free disk)")
}

// spareBytes is what was said with --spare, or nil if nothing was.
func spareBytes(said string) (*uint64, error) {
	if said == "" {
		return nil, nil
	}
	bytes, err := text.ParseBytes(said)
	return &bytes, err
}

// join takes part in a session, unless this machine does already, and returns when its model can be asked.
func join(ctx context.Context, c *control.Client, code string, with joining, s screen) (*pb.Session, error) {
	memory, err := text.ParseBytes(with.memory)
	if err != nil {
		return nil, err
	}
	spare, err := spareBytes(with.spare)
	if err != nil {
		return nil, err
	}
	if id, err := c.Called(ctx, code); err != nil {
		return nil, err
	} else if id != "" {
		return untilReady(ctx, c, id, s.display())
	}
	var offer pb.Offer
	stop := s.spin("proving the code to the session's host")
	err = c.Post(ctx, "open", &pb.OpenSessionRequest{
		Code: code, Rendezvous: with.rendezvous, Name: with.name, MemoryBytes: memory, SpareBytes: spare,
	}, &offer)
	stop()
	if err != nil {
		return nil, err
	}
	if !offer.Joined {
		if err := agree(&offer, with.yes, s.in, s.aside); err != nil {
			return nil, err
		}
		var session pb.Session
		if err := c.Post(ctx, "join", &pb.JoinSessionRequest{Session: offer.Session}, &session); err != nil {
			return nil, err
		}
	}
	session, err := untilReady(ctx, c, offer.Session, s.display())
	if err == nil && !offer.Joined && standsBy(session) {
		s.say("This machine holds no part at present: it can ask the model at once, and takes a part when the session is next planned.")
	}
	return session, err
}

// standsBy is true of a member without a stage.
func standsBy(session *pb.Session) bool {
	return !slices.ContainsFunc(session.Stages, func(s *pb.Stage) bool { return s.Member == session.Self })
}

// agree asks the person at the terminal whether this machine shall take part.
func agree(offer *pb.Offer, yes bool, from io.Reader, to io.Writer) error {
	fmt.Fprint(to, text.Terms(offer))
	return whetherToJoin.put(yes, from, to)
}

var whetherToJoin = question{
	asks:     "Join?",
	unasked:  "joining lends this machine's memory and disk, and there is no terminal to ask at: add --yes to agree",
	declined: "not joined: nothing was lent or downloaded",
}
