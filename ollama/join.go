package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kafila/ollama/pb"
)

// What a machine brings to a session, as flags of `run --session` and `session join`.
type joining struct {
	yes        bool
	memory     string
	name       string
	rendezvous string
	asJSON     bool
}

func (j *joining) addFlags(cmd *cobra.Command, prefix string) {
	cmd.Flags().BoolVar(&j.yes, "yes", false, prefix+"Join without asking")
	cmd.Flags().StringVar(&j.memory, "memory", "", prefix+"Lend at most `SIZE` of this machine's memory, such as 12GB (default: what is usable)")
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
		Args:    arguments(1, 4), // a code typed with spaces is four words
		RunE: func(cmd *cobra.Command, args []string) error {
			session, err := join(cmd.Context(), newControl(), strings.Join(args, " "), with)
			if err == nil && !with.asJSON {
				fmt.Fprintln(os.Stderr, readyText(session))
			}
			return err
		},
	}
	with.addFlags(cmd, "")
	addJSON(cmd, &with.asJSON)
	return cmd
}

const runExamples = `  # a model on this machine
  ollama run qwen3

  # the model of a session: joins it if need be, then chats
  ollama run --session 7-ocean-velvet-lamp

  # one answer, without being asked whether to join
  ollama run --session 7-ocean-velvet-lamp --yes "What is the capital of France?"`

// addSessionFlags gives stock's `run` its --session: join if need be, then the same chat with the session's model.
func addSessionFlags(run *cobra.Command) {
	var code string
	var with joining
	original, stockArgs := run.RunE, run.Args
	run.Use, run.Example = "run MODEL|--session CODE [PROMPT]", runExamples
	run.Flags().StringVar(&code, "session", "", "Run the model of the session with this `CODE`; join it if need be")
	with.addFlags(run, "With --session: ")
	appendVariables(run, sessionVariables[1:])
	run.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("session") {
			return nil
		}
		return stockArgs(cmd, args)
	}
	run.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("session") {
			if err := checkMembership(cmd.Context(), newControl(), args); err != nil {
				return err
			}
			return original(cmd, args)
		}
		session, err := join(cmd.Context(), newControl(), code, with)
		if err != nil {
			return err
		}
		return original(cmd, append([]string{session.Vehicle.GetName()}, args...))
	}
}

// checkMembership refuses the model of a session that this machine is not in: stock would try to pull it.
func checkMembership(ctx context.Context, c *control, args []string) error {
	if len(args) == 0 || !strings.HasPrefix(args[0], modelPrefix) {
		return nil
	}
	open, err := c.open(ctx)
	if err != nil {
		return err
	}
	for _, session := range open {
		if session.Vehicle.GetName() == args[0] {
			return nil
		}
	}
	return fmt.Errorf("this machine is not in the session of %s (any more): join it with its code, ollama run --session CODE", args[0])
}

// join takes part in a session, unless this machine does already, and returns when its model can be asked.
func join(ctx context.Context, c *control, code string, with joining) (*pb.Session, error) {
	memory, err := parseBytes(with.memory)
	if err != nil {
		return nil, err
	}
	if id, err := sessionCalled(ctx, c, code); err != nil {
		return nil, err
	} else if id != "" {
		return untilReady(ctx, c, id, newDisplay(with.asJSON))
	}
	var offer pb.Offer
	stop := spin("proving the code to the session's host")
	err = c.post(ctx, "open", &pb.OpenSessionRequest{
		Code: code, Rendezvous: with.rendezvous, Name: with.name, MemoryBytes: memory,
	}, &offer)
	stop()
	if err != nil {
		return nil, err
	}
	if !offer.Joined {
		if err := agree(&offer, with.yes, os.Stdin, os.Stderr); err != nil {
			return nil, err
		}
		var session pb.Session
		if err := c.post(ctx, "join", &pb.JoinSessionRequest{Session: offer.Session}, &session); err != nil {
			return nil, err
		}
	}
	session, err := untilReady(ctx, c, offer.Session, newDisplay(with.asJSON))
	if err == nil && !offer.Joined && !with.asJSON && standsBy(session) {
		fmt.Fprintln(os.Stderr, "This machine holds no part at present: it can ask the model at once, and takes a part when the session is next planned.")
	}
	return session, err
}

// standsBy is true of a member without a stage.
func standsBy(session *pb.Session) bool {
	return !slices.ContainsFunc(session.Stages, func(s *pb.Stage) bool { return s.Member == session.Self })
}

func readyText(session *pb.Session) string {
	return "Ready. Chat with: ollama run " + session.Vehicle.GetName()
}

// agree asks the person at the terminal whether this machine shall take part.
func agree(offer *pb.Offer, yes bool, from *os.File, to io.Writer) error {
	fmt.Fprint(to, terms(offer))
	if yes {
		return nil
	}
	if !term.IsTerminal(int(from.Fd())) {
		return errors.New("joining lends this machine's memory and disk, and there is no terminal to ask at: add --yes to agree")
	}
	return confirm(from, to)
}

func confirm(from io.Reader, to io.Writer) error {
	fmt.Fprint(to, "Join? [y/N] ")
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	default:
		return errors.New("not joined: nothing was lent or downloaded")
	}
}

// terms says what taking part means for this machine.
func terms(offer *pb.Offer) string {
	people := fmt.Sprintf("%d there", offer.MembersPresent)
	if offer.MembersWanted > 0 {
		people = fmt.Sprintf("%d of %d there", offer.MembersPresent, offer.MembersWanted)
	}
	return fmt.Sprintf("This machine would join the session of %s (members: %s)\n"+
		"  model     %s\n"+
		"  lends     up to %s of memory\n"+
		"  downloads %s\n",
		offer.Host, people, offer.Model, size(float64(offer.LendMemoryBytes)), downloads(offer))
}

func downloads(offer *pb.Offer) string {
	if offer.DownloadBytes == 0 {
		return "nothing: " + offer.Folder + " has the weights"
	}
	text := fmt.Sprintf("up to %s to %s (%s free)",
		size(float64(offer.DownloadBytes)), offer.Folder, size(float64(offer.FreeDiskBytes)))
	if offer.DownloadBytes > offer.FreeDiskBytes {
		text += "\n            That may be more than the disk holds: make room, or lend less with --memory"
	}
	return text
}

// An interrupted is what a person hears who pressed Ctrl-C: no fault, but what was waited for hasn't come.
type interrupted string

func (i interrupted) Error() string { return string(i) }

// errReady ends a watch when there is nothing more to wait for.
var errReady = errors.New("ready")

// untilReady follows a session until its model can be asked. It only watches: Ctrl-C ends the watching, not the session.
func untilReady(ctx context.Context, c *control, id string, d display) (*pb.Session, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	defer d.stop()
	var last *pb.Session
	err := c.watch(ctx, id, func(now *pb.Session) error {
		last = now
		d.show(now)
		switch now.State {
		case ready:
			return errReady
		case closed:
			return errors.New(ending(now))
		}
		return nil
	})
	switch {
	case errors.Is(err, errReady):
		return last, nil
	case ctx.Err() != nil:
		if last != nil {
			id = title(last)
		}
		return nil, interrupted("this machine stays a member of the session: `ollama session status " + id +
			"` shows how far it is, `ollama session leave " + id + "` leaves it")
	case err == nil:
		return nil, errors.New("the server stopped telling about the session before it was ready: is it shutting down?")
	}
	return nil, err
}

func ending(session *pb.Session) string {
	if session.Failure != "" {
		return session.Failure
	}
	return "the session was closed before it was ready"
}
