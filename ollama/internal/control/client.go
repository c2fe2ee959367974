// Package control is the command line's end of /api/session: the one HTTP client of the session routes. It imports
// sessionapi, foreign, env and home.
package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/ollama/ollama/envconfig"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/foreign"
	"kafila/ollama/internal/home"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// lineMaxBytes bounds one line of a watch; a session with 64 members and its plan has some 50 kB.
const lineMaxBytes = 4 << 20

// A Client asks one server.
type Client struct {
	base  *url.URL
	token string
}

// NotOwner is what somebody hears who is not the server's owner and has no token.
type NotOwner string

func (n NotOwner) Error() string { return string(n) }

// New is a client of the server at base; token may be empty.
func New(base *url.URL, token string) *Client {
	return &Client{base: base, token: token}
}

// FromEnvironment is a client of the server that OLLAMA_HOST names, with the token that was set for it, else the owner's.
func FromEnvironment() *Client {
	base := envconfig.Host()
	token := os.Getenv(env.Token)
	if token == "" && mayHaveOwnersToken(base) {
		token = home.ReadToken()
	}
	return New(base, token)
}

// Post makes a call that changes something.
func (c *Client) Post(ctx context.Context, route string, request, reply proto.Message) error {
	return c.change(ctx, http.MethodPost, route, request, reply)
}

// Delete makes a call that removes something.
func (c *Client) Delete(ctx context.Context, route string, request, reply proto.Message) error {
	return c.change(ctx, http.MethodDelete, route, request, reply)
}

func (c *Client) change(ctx context.Context, method, route string, request, reply proto.Message) error {
	body, err := protojson.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := c.do(ctx, method, route, nil, body)
	if err != nil {
		return err
	}
	return c.broken(read(answer, reply))
}

// Get asks without changing anything.
func (c *Client) Get(ctx context.Context, route string, query url.Values, reply proto.Message) error {
	answer, err := c.do(ctx, http.MethodGet, route, query, nil)
	if err != nil {
		return err
	}
	return c.broken(read(answer, reply))
}

// Watch calls each with the session now and after every change, until the stream or the patience of each ends.
func (c *Client) Watch(ctx context.Context, session string, each func(*pb.Session) error) error {
	answer, err := c.do(ctx, http.MethodGet, "watch", url.Values{"session": {session}}, nil)
	if err != nil {
		return err
	}
	defer answer.Close()
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, lineMaxBytes)
	for lines.Scan() {
		if sentence := foreign.Line(sessionapi.ErrorIn(lines.Bytes())); sentence != "" {
			return errors.New(sentence)
		}
		var now pb.Session
		if err := readMessage(lines.Bytes(), &now); err != nil {
			return err
		}
		if err := each(&now); err != nil {
			return err
		}
	}
	return c.broken(lines.Err())
}

// do sends one request and turns every refusal into its one sentence.
func (c *Client) do(ctx context.Context, method, route string, query url.Values, body []byte) (io.ReadCloser, error) {
	address := c.base.JoinPath("api", "session", route)
	address.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, address.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, c.broken(err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, sessionapi.BodyLimitBytes))
	if err != nil {
		return nil, err
	}
	switch sentence := foreign.Line(sessionapi.ErrorIn(said)); {
	case sentence == "":
	case answer.StatusCode == http.StatusUnauthorized:
		return nil, NotOwner(sentence)
	default:
		return nil, errors.New(sentence)
	}
	return nil, fmt.Errorf("%s is another Ollama, which knows no sessions (it answers %s): stop it and run this one's "+
		"`ollama serve`, or set OLLAMA_HOST to where this one serves", c.base.Host, foreign.Line(answer.Status))
}

// broken tells in words that nobody is at the other end, or no longer.
func (c *Client) broken(err error) error {
	var unreachable *net.OpError
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &unreachable) && unreachable.Op == "dial":
		return fmt.Errorf("no Ollama server answers at %s (%w): start it with `ollama serve`", c.base.Host, unreachable.Err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), unreachable != nil:
		return fmt.Errorf("the Ollama server at %s went away: see its log, and start it again with `ollama serve`", c.base.Host)
	}
	return err
}

func read(answer io.ReadCloser, reply proto.Message) error {
	defer answer.Close()
	body, err := io.ReadAll(answer)
	if err != nil {
		return err
	}
	return readMessage(body, reply)
}

// readMessage leaves out what a newer server says and this command doesn't know, and what is not for a terminal.
func readMessage(text []byte, message proto.Message) error {
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, message); err != nil {
		return fmt.Errorf("the server's answer can't be read: %s", foreign.Line(err.Error()))
	}
	foreign.Clean(message)
	return nil
}

// Open gives the sessions that this machine is in.
func (c *Client) Open(ctx context.Context) ([]*pb.Session, error) {
	var all pb.ListSessionsReply
	if err := c.Get(ctx, "list", nil, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all.Sessions, func(s *pb.Session) bool { return s.State == sessionapi.Closed }), nil
}

// Only gives the session that a command without argument means: the one there is.
func (c *Client) Only(ctx context.Context) (*pb.Session, error) {
	open, err := c.Open(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, session := range open {
		names = append(names, sessionapi.Title(session))
	}
	switch len(open) {
	case 0:
		return nil, errors.New("this machine is in no session: `ollama session create MODEL` opens one")
	case 1:
		return open[0], nil
	default:
		return nil, fmt.Errorf("this machine is in %d sessions, so name one: %s", len(open), strings.Join(names, ", "))
	}
}

// Called is the id of the session that a person calls so, or "" where there is none.
func (c *Client) Called(ctx context.Context, name string) (string, error) {
	open, err := c.Open(ctx)
	if err != nil {
		return "", err
	}
	for _, session := range open {
		if sessionapi.IsCalled(session, name) {
			return session.Id, nil
		}
	}
	return "", nil
}
