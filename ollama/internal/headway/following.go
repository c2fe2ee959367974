package headway

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Patience is how long a person waits before being told for what.
const Patience = 700 * time.Millisecond

// Following asks for updates of each answer and shows them on a terminal, in a line below stock's spinner, which is gone
// when the answer's first line comes or it ends.
type Following struct {
	Below    http.RoundTripper
	Tells    io.Writer
	Patience time.Duration
}

// RoundTrip is for stock's client. It returns with the answer's first line: until then a person who gives up gets from
// stock's prompt what one gets whose model has said nothing yet.
func (f Following) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || (r.URL.Path != "/api/chat" && r.URL.Path != "/api/generate") {
		return f.Below.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set(Header, "1")
	began := time.Now()
	answer, err := f.Below.RoundTrip(r)
	if err != nil || answer.StatusCode >= http.StatusBadRequest {
		return answer, err
	}
	told := &followed{of: answer.Body, lines: bufio.NewReader(answer.Body), tells: f.Tells, from: began.Add(f.Patience)}
	if err := told.next(); err != nil && !errors.Is(err, io.EOF) {
		told.Close()
		return nil, err
	}
	answer.Body = told
	return answer, nil
}

// followed is an answer less its updates.
type followed struct {
	of      io.ReadCloser
	lines   *bufio.Reader
	rest    []byte // of a line that is passed on
	isCut   bool   // the rest of that line comes with the next read
	tells   io.Writer
	from    time.Time
	drawing sync.Mutex
	newest  *Update     // that no word of the answer has followed
	late    *time.Timer // of what came before a person is to be told
	isShown bool
}

func (f *followed) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// next reads on to a line that is passed on, or as much of it as is read at once: a server may send one without end.
func (f *followed) next() error {
	for {
		line, err := f.lines.ReadSlice('\n')
		if update, ok := In(line); ok && !f.isCut {
			f.show(update)
			continue
		}
		f.isCut = errors.Is(err, bufio.ErrBufferFull)
		f.clear()
		f.rest = line
		if len(line) > 0 {
			return nil
		}
		return err
	}
}

func (f *followed) Close() error {
	f.clear()
	if f.late != nil {
		f.late.Stop()
	}
	return f.of.Close()
}

// The spinner's line is stock's: it writes from that line's beginning to its end, every tenth of a second.
const (
	lineBelow = "\n\r\x1b[K"
	lineAbove = "\x1b[A\r"
)

// show draws an update, once a person has waited so long.
func (f *followed) show(u Update) {
	f.drawing.Lock()
	defer f.drawing.Unlock()
	f.newest = &u
	if wait := time.Until(f.from); wait > 0 {
		if f.late == nil {
			f.late = time.AfterFunc(wait, f.showNewest)
		}
		return
	}
	f.draw()
}

func (f *followed) showNewest() {
	f.drawing.Lock()
	defer f.drawing.Unlock()
	if f.newest != nil {
		f.draw()
	}
}

func (f *followed) draw() {
	f.isShown = true
	fmt.Fprint(f.tells, lineBelow+f.newest.words()+lineAbove)
}

func (f *followed) clear() {
	f.drawing.Lock()
	defer f.drawing.Unlock()
	f.newest = nil
	if f.isShown {
		f.isShown = false
		fmt.Fprint(f.tells, lineBelow+lineAbove)
	}
}

// words fit into a narrow terminal.
func (u Update) words() string {
	switch {
	case u.Doing == Interrupted:
		return "waiting for the ring, which was interrupted"
	case u.Doing != Reading || u.Of == 0:
		return "waiting for its turn"
	}
	const width = 20
	read := min(u.Tokens, u.Of) // whatever a server says
	done := int(uint64(read) * width / uint64(u.Of))
	return fmt.Sprintf("reading %s%s %d of %d tokens", strings.Repeat("█", done), strings.Repeat("░", width-done), read, u.Of)
}
