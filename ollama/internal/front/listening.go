package front

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/internal/headway"
)

// A course is what becomes of one client's request on its way through stock to a session's runner, which stock alone
// would not tell. It travels in the request's context.
type course struct {
	mutex     sync.Mutex
	isSession bool // a session's runner answers
	failure   *envelope.Failure
	context   []uint32 // ids of prompt and answer, where they were wished

	wishes *envelope.Wishes // what goes to the runner beside what stock sends; both are set before stock is asked
	tell   func(headway.Update)
}

type courseKey struct{}

// withCourse gives the request's course, a new one where it has none yet.
func withCourse(ctx context.Context) (context.Context, *course) {
	if c, ok := ctx.Value(courseKey{}).(*course); ok {
		return ctx, c
	}
	c := &course{}
	return context.WithValue(ctx, courseKey{}, c), c
}

func (c *course) answered() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.isSession = true
}

func (c *course) heard(line []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if failure, ok := envelope.FailureIn(line); ok {
		c.failure = &failure
	} else if ids, ok := envelope.ContextIn(line); ok {
		c.context = append(c.context, ids...)
	} else if update, ok := headway.In(line); ok && c.tell != nil {
		c.tell(update)
	}
}

func (c *course) ids() []uint32 {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.context
}

func (c *course) now() (isSession bool, failure *envelope.Failure) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.isSession, c.failure
}

// Listening gives the way of stock's scheduler to its runners, by which a Front's requests go on: next takes it there.
func Listening(next http.RoundTripper) http.RoundTripper { return &listening{next: next} }

// listening is the way of stock's scheduler to its runners. It tells a session's runner what stock does not, and hears
// what that says beside its answer before stock reads on; other requests and answers pass through.
type listening struct {
	next http.RoundTripper
}

func (l *listening) RoundTrip(r *http.Request) (*http.Response, error) {
	c, ok := r.Context().Value(courseKey{}).(*course)
	if ok && c.wishes != nil && (r.URL.Path == "/completion" || r.URL.Path == "/embedding") {
		with, err := c.wishes.Put(r)
		if err != nil {
			return nil, err
		}
		r = with
	}
	response, err := l.next.RoundTrip(r)
	if err != nil || !ok || response.Header.Get(envelope.SessionHeader) == "" {
		return response, err
	}
	c.answered()
	response.Body = &overheard{ReadCloser: response.Body, course: c}
	return response, nil
}

// errFailed is what stock reads of an answer that failed within, as was told before in a line. Its own words would be
// those of the transport, and some make it end the runner with all other answers.
var errFailed = errors.New("the session's answer failed")

// overheard is a completion's body that is looked at line by line while stock reads it.
type overheard struct {
	io.ReadCloser
	course *course
	line   []byte // its beginning, as far as it was read
}

func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		o.line = append(o.line, part...)
		if !whole {
			break
		}
		o.course.heard(o.line)
		o.line, rest = o.line[:0], after
	}
	if _, failure := o.course.now(); failure != nil && err != nil && !errors.Is(err, io.EOF) {
		err = errFailed
	}
	return n, err
}
