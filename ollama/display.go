package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/ollama/ollama/progress"

	"kafila/ollama/pb"
)

// A display shows a person, or a program, how a session comes about.
type display interface {
	show(now *pb.Session)
	stop()
}

// newDisplay gives JSON lines on standard output, bars on a terminal, or plain lines; the latter two on standard error.
func newDisplay(asJSON bool) display {
	switch {
	case asJSON:
		return jsonLines{os.Stdout}
	case term.IsTerminal(int(os.Stderr.Fd())):
		return &bars{w: os.Stderr, loads: map[string]*progress.Bar{}}
	default:
		return &lines{w: os.Stderr}
	}
}

// spin shows a person at a terminal that something goes on, until the returned function is called.
func spin(sentence string) (stop func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	p := progress.NewProgress(os.Stderr)
	p.Add("", progress.NewSpinner(sentence))
	return func() { p.StopAndClear() }
}

type jsonLines struct{ w io.Writer }

func (j jsonLines) show(now *pb.Session) { writeMessage(j.w, now) }

func (jsonLines) stop() {}

type lines struct {
	w    io.Writer
	last *pb.Session
}

func (l *lines) show(now *pb.Session) {
	for _, line := range changes(l.last, now) {
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
	if b.last == nil && now.State == ready {
		return
	}
	for _, line := range changes(b.last, now) {
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

// changes tells what a person wants to know of the step from one state of a session to the next: who came, who left,
// what is waited for, and what is fetched. Of a session that is ready when it is first seen there is nothing to tell.
func changes(before, now *pb.Session) []string {
	if before == nil && now.State == ready {
		return nil
	}
	var told []string
	was := present(before)
	for _, member := range now.Members {
		if member.Present && !was[member.Name] {
			told = append(told, arrival(before, now, member))
		}
	}
	is := present(now)
	for _, member := range before.GetMembers() {
		if member.Present && !is[member.Name] {
			told = append(told, member.Name+" is away")
		}
	}
	if now.Doing != "" && now.Doing != before.GetDoing() {
		told = append(told, now.Doing)
	}
	return append(told, fetches(before, now)...)
}

func present(session *pb.Session) map[string]bool {
	names := map[string]bool{}
	for _, member := range session.GetMembers() {
		names[member.Name] = member.Present
	}
	return names
}

// arrival tells who came; whom the first look finds was there before.
func arrival(before, session *pb.Session, member *pb.Member) string {
	count := 0
	for _, here := range present(session) {
		if here {
			count++
		}
	}
	line := member.Name + " joined"
	switch {
	case member.Name == session.Self:
		line = member.Name + " (this machine) joined"
	case before == nil:
		return member.Name + " is there"
	}
	if session.MembersWanted > 0 {
		return fmt.Sprintf("%s: %d of %d members", line, count, session.MembersWanted)
	}
	return line
}

// fetches tells the beginning and the end of each member's download.
func fetches(before, now *pb.Session) []string {
	was := map[string]*pb.Member{}
	for _, member := range before.GetMembers() {
		was[member.Name] = member
	}
	var told []string
	for _, member := range now.Members {
		old := was[member.Name]
		switch {
		case member.FetchTotalBytes == 0:
		case old.GetFetchTotalBytes() == 0 && member.FetchedBytes < member.FetchTotalBytes:
			told = append(told, fmt.Sprintf("%s fetches %s", member.Name, size(float64(member.FetchTotalBytes))))
		case old.GetFetchedBytes() < old.GetFetchTotalBytes() && member.FetchedBytes == member.FetchTotalBytes:
			told = append(told, member.Name+" has its weights")
		}
	}
	return told
}
