package cli

import (
	"fmt"
	"io"

	"github.com/ollama/ollama/progress"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

// A display shows a person, or a program, how a session comes about.
type display interface {
	show(now *pb.Session)
	stop()
}

type jsonLines struct{ w io.Writer }

func (j jsonLines) show(now *pb.Session) { sessionapi.WritePlain(j.w, now) }

func (jsonLines) stop() {}

type lines struct {
	w    io.Writer
	last *pb.Session
}

func (l *lines) show(now *pb.Session) {
	for _, line := range text.Changes(l.last, now) {
		fmt.Fprintln(l.w, line)
	}
	l.last = now
}

func (l *lines) stop() {}

// bars keeps what happened as lines, what goes on as a spinner below them, and a bar for each member that downloads.
type bars struct {
	w       io.Writer
	p       *progress.Progress // nil until there is something to show
	spinner *progress.Spinner
	loads   map[string]*progress.Bar
	last    *pb.Session
}

func (b *bars) show(now *pb.Session) {
	if b.last == nil && now.State == sessionapi.Ready {
		return
	}
	for _, line := range text.Changes(b.last, now) {
		if b.spinner != nil {
			b.spinner.Stop()
		}
		b.spinner = progress.NewSpinner(line)
		b.add(b.spinner)
	}
	for _, member := range now.Members {
		b.load(member)
	}
	b.last = now
}

func (b *bars) load(member *pb.Member) {
	total, fetched := int64(member.FetchTotalBytes), int64(member.FetchedBytes)
	if total == 0 {
		return
	}
	bar, ok := b.loads[member.Name]
	if !ok {
		bar = progress.NewBar(member.Name+" fetches", total, fetched)
		b.loads[member.Name] = bar
		b.add(bar)
	}
	bar.Set(fetched)
}

func (b *bars) add(state progress.State) {
	if b.p == nil {
		b.p = progress.NewProgress(b.w)
	}
	b.p.Add("", state)
}

func (b *bars) stop() {
	if b.p != nil {
		b.p.Stop()
	}
}
