// Package called knows by which name people started this program, and has sentences say that name. Its own is `ollama`;
// a package installs it as `kafila`, beside a stock Ollama that knows no sessions. It imports nothing.
package called

import (
	"os"
	"path/filepath"
	"regexp"
)

// The two names: upstream's, by which sentences here name a command, and the one in packages.
const (
	Ollama = "ollama"
	Kafila = "kafila"
)

// command is where a sentence names one of our commands: not in "the ollama server", not in a path.
var command = regexp.MustCompile(`(^|[^\w/.-])ollama( (?:session|serve|service|run|stop|pull|push|create|show|list|ls|ps|cp|rm|completion|launch|signin|signout)\b)`)

// Name is what people type: `kafila` where this program is called so, else `ollama`.
func Name() string { return nameOf(os.Args[0]) }

func nameOf(program string) string {
	if filepath.Base(program) == Kafila {
		return Kafila
	}
	return Ollama
}

// Words is a sentence with its commands called as people call them.
func Words(name, sentence string) string {
	if name == Ollama {
		return sentence
	}
	return command.ReplaceAllString(sentence, "${1}"+name+"${2}")
}

// Writer passes on what is printed, with its commands called as people call them. A command that two writes
// cut in half stays as it is.
func Writer(name string, to *os.File) *Printed { return &Printed{name, to} }

// A Printed is a file that is written through Words, and a terminal if that one is.
type Printed struct {
	name string
	to   *os.File
}

func (p *Printed) Write(text []byte) (int, error) {
	if _, err := p.to.WriteString(Words(p.name, string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Fd is the file's descriptor, by which terminals are known.
func (p *Printed) Fd() uintptr { return p.to.Fd() }
