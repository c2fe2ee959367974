package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// An Interrupted is what a person hears who pressed Ctrl-C: no fault, but what was waited for hasn't come.
type Interrupted string

func (i Interrupted) Error() string { return string(i) }

// errReady ends a watch when there is nothing more to wait for.
var errReady = errors.New("ready")

// untilReady follows a session until its model can be asked. It only watches: Ctrl-C ends the watching, not the session.
func untilReady(ctx context.Context, c *control.Client, id string, d display) (*pb.Session, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	defer d.stop()
	var last *pb.Session
	err := c.Watch(ctx, id, func(now *pb.Session) error {
		last = now
		d.show(now)
		switch now.State {
		case sessionapi.Ready:
			return errReady
		case sessionapi.Closed:
			return errors.New(ending(now))
		}
		return nil
	})
	switch {
	case errors.Is(err, errReady):
		return last, nil
	case ctx.Err() != nil:
		if last != nil {
			id = sessionapi.Title(last)
		}
		return nil, Interrupted("this machine stays a member of the session: `ollama session status " + id +
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
