package headway

import (
	"maps"
	"net/http"
	"sync"
	"time"
)

// A Writer is where stock answers a client that wants to hear before that how far its answer is. From the first update
// on the status is 200, and what stock would say by another one is its line alone.
type Writer struct {
	to     http.ResponseWriter
	header http.Header // stock's

	mutex     sync.Mutex
	silence   *time.Timer
	isUpdated bool
	isBegun   bool // by stock
	isOver    bool
}

// NewWriter is for answers of lines. It says by itself that the answer waits, where nothing came for that long: stock lets
// no more in at once than the session answers, and the session may be planned anew. Close it.
func NewWriter(to http.ResponseWriter, silence time.Duration) *Writer {
	w := &Writer{to: to, header: to.Header().Clone()}
	w.silence = time.AfterFunc(silence, w.breakSilence)
	return w
}

// Close is before the handler returns: nothing may be written any more.
func (w *Writer) Close() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.isOver = true
	w.silence.Stop()
}

// Tell writes an update, between stock's lines or before them.
func (w *Writer) Tell(u Update) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.tell(u)
}

func (w *Writer) breakSilence() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.isUpdated && !w.isBegun {
		w.tell(Update{Doing: Waiting})
	}
}

func (w *Writer) tell(u Update) {
	if w.isOver {
		return
	}
	if !w.isUpdated && !w.isBegun {
		w.to.Header().Set("Content-Type", "application/x-ndjson")
	}
	w.isUpdated = true
	if _, err := w.to.Write(u.Line()); err == nil {
		w.flush()
	}
}

// Header is not shared with Tell: stock may set it at any time.
func (w *Writer) Header() http.Header { return w.header }

// WriteHeader is stock's.
func (w *Writer) WriteHeader(status int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.begin(status)
}

func (w *Writer) begin(status int) {
	if w.isBegun {
		return
	}
	w.isBegun = true
	if !w.isUpdated {
		maps.Copy(w.to.Header(), w.header)
		w.to.WriteHeader(status)
	}
}

// Write is stock's, of whole lines but for the last one's end.
func (w *Writer) Write(data []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.begin(http.StatusOK)
	return w.to.Write(data)
}

// Flush is what stock's streams ask of a writer.
func (w *Writer) Flush() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.flush()
}

func (w *Writer) flush() {
	if flusher, ok := w.to.(http.Flusher); ok {
		flusher.Flush()
	}
}

// CloseNotify is what gin asks of a writer.
func (w *Writer) CloseNotify() <-chan bool {
	//lint:ignore SA1019 gin's streams use it
	if notifier, ok := w.to.(http.CloseNotifier); ok {
		return notifier.CloseNotify()
	}
	return make(chan bool)
}
