// Package report packs what helps to find a fault into one archive, without what says who takes part, where, or with
// which words. It imports logbook, sessionapi and pb.
package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/user"
	"runtime"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// A Report is gathered piece by piece, and then packed.
type Report struct {
	files map[string][]any // by name: values, one a line
	order []string
	names *names
}

// New is a report of this machine with these versions.
func New(versions string) *Report {
	r := &Report{files: map[string][]any{}, names: newNames()}
	if own, err := user.Current(); err == nil {
		r.names.call("<user>", own.Username)
	}
	if name, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(name, ".")
		r.names.call("<machine>", name)
		r.names.call("<machine>", short)
	}
	if folder, err := os.UserHomeDir(); err == nil {
		r.names.call("~", folder)
	}
	r.add("about.json", map[string]any{
		"versions": versions, "system": runtime.GOOS + "/" + runtime.GOARCH, "processors": runtime.NumCPU(),
		"at": time.Now().UTC().Format(time.RFC3339),
	})
	return r
}

// Session takes a session's members for names.
func (r *Report) Session(session *pb.Session) {
	r.names.member(session.Self)
	r.names.member(session.Host)
	for _, member := range session.Members {
		r.names.member(member.Name)
	}
}

// Message takes a message into a file.
func (r *Report) Message(file string, message proto.Message) {
	var line bytes.Buffer
	sessionapi.WritePlain(&line, message)
	r.Add(file, line.Bytes())
}

// Add takes a line of JSON into a file; what is no JSON is left out.
func (r *Report) Add(file string, line []byte) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) == nil {
		r.add(file, value)
	}
}

// Lacks says why something is not there.
func (r *Report) Lacks(what string, why error) {
	r.add("lacking.jsonl", map[string]any{"what": what, "why": why.Error()})
}

func (r *Report) add(file string, value any) {
	if _, known := r.files[file]; !known {
		r.order = append(r.order, file)
	}
	r.files[file] = append(r.files[file], value)
	r.names.learn(value)
}

// Pack writes the archive, when all names are known.
func (r *Report) Pack(to io.Writer) error {
	zipped := gzip.NewWriter(to)
	archive := tar.NewWriter(zipped)
	for _, file := range r.order {
		text, err := r.scrubbed(r.files[file])
		if err != nil {
			return err
		}
		header := &tar.Header{Name: "kafila-report/" + file, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

func (r *Report) scrubbed(values []any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	for _, value := range values {
		if err := encoder.Encode(r.names.without(value)); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}
