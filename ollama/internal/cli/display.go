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

// bars keeps who came and left as lines, what goes on as a spinner below them, and a bar for each member that downloads.
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
	for _, line := range text.Moves(b.last, now) {
		b.say(line)
		b.spinner.Stop()
		b.spinner = nil
	}
	if doing := text.Doing(now); doing != "" {
		b.say(doing)
	}
	for _, member := range now.Members {
		b.load(member)
	}
	b.last = now
}

// say puts a line where the spinner is.
func (b *bars) say(line string) {
	if b.spinner != nil {
		b.spinner.SetMessage(line)
		return
	}
	b.spinner = progress.NewSpinner(line)
	b.add(b.spinner)
}

func (b *bars) load(member *pb.Member) {
	total, fetched := int64(member.FetchTotalBytes), int64(member.FetchedBytes)
	bar, ok := b.loads[member.Name]
	if total == 0 || !ok && fetched == total {
		return
	}
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

// stop leaves what was shown as it is; what is shown next begins below.
func (b *bars) stop() {
	if b.p != nil {
		b.p.Stop()
	}
	b.p, b.spinner, b.loads = nil, nil, map[string]*progress.Bar{}
}

// A planned display tells the plan as soon as it stands, once, between what came before it and what comes after.
type planned struct {
	display
	tell func(now *pb.Session)
}

func (p *planned) show(now *pb.Session) {
	if p.tell != nil && len(now.Stages) > 0 {
		p.display.stop()
		p.tell(now)
		p.tell = nil
	}
	p.display.show(now)
}
