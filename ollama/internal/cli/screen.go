package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"google.golang.org/protobuf/proto"

	"github.com/ollama/ollama/progress"

	"kafila/ollama/internal/qr"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

// A screen is where a command tells a person, or a program, what came of it.
type screen struct {
	in     io.Reader
	out    io.Writer // what others can use: a code, a table, JSON
	aside  io.Writer // what people want to know beside that
	asJSON bool      // a program reads: the messages alone, one object a line
}

// screenOf is where a command runs; one without --json prints for people.
func screenOf(cmd *cobra.Command) screen {
	asJSON, err := cmd.Flags().GetBool("json")
	asJSON = asJSON && err == nil
	return screen{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), aside: cmd.ErrOrStderr(), asJSON: asJSON}
}

// show prints a message for a program or, as text, for a person.
func (s screen) show(message proto.Message, asText func() string) error {
	if s.asJSON {
		sessionapi.WritePlain(s.out, message)
		return nil
	}
	_, err := fmt.Fprint(s.out, asText())
	return err
}

// tell prints a result that others can use, such as a code, with a sentence beside it; for a program the session alone.
func (s screen) tell(session *pb.Session, result, sentence string) error {
	if s.asJSON {
		sessionapi.WritePlain(s.out, session)
		return nil
	}
	if result != "" {
		fmt.Fprintln(s.out, result)
	}
	_, err := fmt.Fprintln(s.aside, sentence)
	return err
}

// object prints for a program what is no message of the protocol.
func (s screen) object(value any) error {
	to := json.NewEncoder(s.out)
	to.SetEscapeHTML(false)
	return to.Encode(value)
}

// done tells a person what was done, and a program what came of it.
func (s screen) done(message proto.Message, sentence string) {
	if s.asJSON {
		sessionapi.WritePlain(s.out, message)
		return
	}
	s.say(sentence)
}

// say tells a person a sentence, and a program nothing.
func (s screen) say(sentence string) {
	if !s.asJSON {
		fmt.Fprintln(s.aside, sentence)
	}
}

// ready says how to chat with a session's model.
func (s screen) ready(session *pb.Session) { s.say(text.Ready(session)) }

// display gives JSON lines, bars on a terminal, or plain lines.
func (s screen) display() display {
	switch {
	case s.asJSON:
		return jsonLines{s.out}
	case isTerminal(s.aside):
		return &bars{w: s.aside, loads: map[string]*progress.Bar{}}
	default:
		return &lines{w: s.aside}
	}
}

// draw shows a person at a terminal a code that is too long to read aloud, so that a telephone can pass it on.
func (s screen) draw(code string) {
	if !s.asJSON && strings.Contains(code, "@") && isTerminal(s.aside) {
		fmt.Fprint(s.aside, qr.Lines(code))
	}
}

// canAsk is true where a person reads what is asked, and can answer.
func (s screen) canAsk() bool { return !s.asJSON && isTerminal(s.in) && isTerminal(s.aside) }

// spin shows a person at a terminal that something goes on, until the returned function is called.
func (s screen) spin(sentence string) (stop func()) {
	if !isTerminal(s.aside) {
		return func() {}
	}
	p := progress.NewProgress(s.aside)
	p.Add("", progress.NewSpinner(sentence))
	return func() { p.StopAndClear() }
}

// A question is asked before what a person may not want.
type question struct {
	asks     string // ends with "?"
	unasked  string // what is refused where there is nobody to ask
	declined string // what came of "no"
}

// put is nil if the person agrees, or has agreed before with --yes.
func (q question) put(yes bool, from io.Reader, to io.Writer) error {
	switch {
	case yes:
		return nil
	case !isTerminal(from):
		return errors.New(q.unasked)
	}
	return q.confirm(from, to)
}

func (q question) confirm(from io.Reader, to io.Writer) error {
	fmt.Fprint(to, q.asks+" [y/N] ")
	if agreed, err := saysYes(from); err != nil || agreed {
		return err
	}
	return errors.New(q.declined)
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

// isTerminal is true where a person sits at the other end.
func isTerminal(stream any) bool {
	file, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}

const (
	usualWidth = 80
	leastWidth = 40 // narrower ones get lines that the terminal breaks
)

// widthOf is how many characters fit into a line of a terminal; 0 is no limit, where a file or a program reads.
func widthOf(stream any) int {
	if !isTerminal(stream) {
		return 0
	}
	width, _, err := term.GetSize(int(stream.(interface{ Fd() uintptr }).Fd()))
	if err != nil || width == 0 {
		return usualWidth
	}
	return max(width, leastWidth)
}
