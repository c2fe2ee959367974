package logbook

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"runtime"
	"strings"

	"google.golang.org/grpc/status"
)

// ours begins the names of all functions of this program that are not stock's.
const ours = "kafila/ollama/"

// A handler passes records on, and keeps those of our own parts: stock's may tell of prompts.
type handler struct {
	slog.Handler
	file   *File
	before string // attributes that come with every record
	group  string
}

// Keep has the default logger's records kept in file as well. It may be said again, when somebody has set another default
// since.
func Keep(file *File) {
	if file == nil {
		return
	}
	if _, already := slog.Default().Handler().(*handler); !already {
		slog.SetDefault(slog.New(&handler{Handler: slog.Default().Handler(), file: file}))
	}
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	if where, is := ourPart(record.PC); is {
		h.keep(where, record)
	}
	return h.Handler.Handle(ctx, record)
}

func (h *handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	before := h.before
	for _, one := range attributes {
		before += h.said(one)
	}
	return &handler{h.Handler.WithAttrs(attributes), h.file, before, h.group}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.file, h.before, h.group + name + "."}
}

// keep writes one record down. A disk that is full costs the entry: standard error has it.
func (h *handler) keep(where string, record slog.Record) {
	said := record.Message + h.before
	record.Attrs(func(one slog.Attr) bool {
		said += h.said(one)
		return true
	})
	entry := Entry{At: record.Time.UTC(), Level: record.Level.String(), From: "server", Where: where, Said: Scrub(said, nil)}
	line, err := json.Marshal(entry)
	if err == nil {
		_, _ = h.file.Write(append(line, '\n'))
	}
}

// said is an attribute as an entry has it. Of an error of the sidecar only the code: its sentence is about members.
func (h *handler) said(one slog.Attr) string {
	value := one.Value.Resolve()
	if err, is := value.Any().(error); is {
		if failed, ok := status.FromError(err); ok && err != nil {
			return fmt.Sprintf(" %s%s=%s", h.group, one.Key, failed.Code())
		}
	}
	return fmt.Sprintf(" %s%s=%s", h.group, one.Key, strings.ReplaceAll(value.String(), "\n", " "))
}

// ourPart is the package that logs, if it is one of ours.
func ourPart(pc uintptr) (string, bool) {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	name, is := strings.CutPrefix(frame.Function, ours)
	room, _, _ := strings.Cut(path.Base(name), ".")
	return room, is
}
