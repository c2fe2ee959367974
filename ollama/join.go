package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ollama/ollama/format"

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
	cmd.Flags().StringVar(&j.memory, "memory", "", prefix+"The most memory that this machine lends, such as 12GB (default: what is usable)")
	cmd.Flags().StringVar(&j.name, "name", "", prefix+"This machine's name in the session (default: its host name)")
	cmd.Flags().StringVar(&j.rendezvous, "rendezvous", "", prefix+"host:port of the rendezvous, if the code doesn't carry it (default $KAFILA_RENDEZVOUS)")
}

// addSessionFlags gives stock's `run` its --session: join if need be, then the same chat with the session's model.
func addSessionFlags(run *cobra.Command) {
	var code string
	var with joining
	original, stockArgs := run.RunE, run.Args
	run.Use = "run MODEL|--session CODE [PROMPT]"
	run.Flags().StringVar(&code, "session", "", "Run the model of a session, by its code; joins it if need be")
	with.addFlags(run, "With --session: ")
	run.Args = func(cmd *cobra.Command, args []string) error {
		if code != "" {
			return nil
		}
		return stockArgs(cmd, args)
	}
	run.RunE = func(cmd *cobra.Command, args []string) error {
		if code == "" {
			return original(cmd, args)
		}
		session, err := join(cmd.Context(), newControl(), code, with)
		if err != nil {
			return err
		}
		return original(cmd, append([]string{session.Vehicle.GetName()}, args...))
	}
}

// join takes part in a session, unless this machine does already, and returns when its model can be asked.
func join(ctx context.Context, c *control, code string, with joining) (*pb.Session, error) {
	memory, err := parseBytes(with.memory)
	if err != nil {
		return nil, err
	}
	var offer pb.Offer
	err = c.post(ctx, "open", &pb.OpenSessionRequest{
		Code: code, Rendezvous: with.rendezvous, Name: with.name, MemoryBytes: memory,
	}, &offer)
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
	return untilReady(ctx, c, offer.Session, newDisplay(with.asJSON))
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
		"  downloads up to %s to %s (%s free)\n",
		offer.Host, people, offer.Model, format.HumanBytes(int64(offer.LendMemoryBytes)),
		format.HumanBytes(int64(offer.DownloadBytes)), offer.Folder, format.HumanBytes(int64(offer.FreeDiskBytes)))
}

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
		return nil, fmt.Errorf("no longer watching, and still in the session: "+
			"`ollama session status %[1]s` shows it, `ollama session leave %[1]s` leaves it", id)
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
