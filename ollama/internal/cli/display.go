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

const spinnerWidth = 3 // a space, what turns, and the last column

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
	line = cut(line, widthOf(b.w)-spinnerWidth) // a line that the terminal breaks would stay where it was
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

// cut leaves a line that fits as it is, and ends a longer one with an ellipsis. Below two characters there is no limit.
func cut(line string, width int) string {
	runes := []rune(line)
	if width < 2 || len(runes) <= width {
		return line
	}
	return string(runes[:width-1]) + "…"
}

// A planned display tells the plan as soon as it stands, between what came before it and what comes after. Where there
// is somebody to ask, it tells the plan that can be chosen, and is silent until that is done.
type planned struct {
	display
	tell func(now *pb.Session)
	ask  func(now *pb.Session) // nil where nobody is asked; doesn't wait for the answer
	told uint32                // the epoch of the plan that was told last
}

func (p *planned) show(now *pb.Session) {
	chooses := p.ask != nil && sessionapi.IsChoosing(now)
	stands := len(now.Stages) > 0 && (p.ask == nil || now.State != sessionapi.Linking)
	if isNew := p.told == 0 || chooses && p.told != now.Epoch; isNew && (chooses || stands) {
		p.display.stop()
		p.tell(now)
		p.told = now.Epoch
		if chooses {
			p.ask(now)
		}
	}
	if !chooses {
		p.display.show(now)
	}
}
