package logbook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var secrets = map[string]string{
	"a code":          "7-ocean-velvet-lamp",
	"a whole code":    "7-ocean-velvet-lamp@rv.example.org:7770#6aviinzr5n6z3x35c6c2",
	"an address":      "192.0.2.17",
	"a place":         "198.51.100.4:38329",
	"an IPv6 address": "2001:db8::17",
	"an IPv6 place":   "[2001:db8:1:2:3:4:5:6]:7770",
	"a host":          "rv.example.org:7770",
	"a link":          "https://ann:pass@hub.example/x?token=1",
	"a key":           strings.Repeat("5b6f9b1de3a7c4f2", 4),
	"a token":         "hf_AbCdEfGhIjKlMnOpQrSt1234",
	"a fingerprint":   "#6aviinzr5n6z3x35c6c2",
	"a member":        "Anna's Mac",
	"another member":  "büro-2",
}

var names = map[string]string{"Anna's Mac": "member-1", "büro-2": "member-2", "": "nobody", "Anna": "member-3"}

func TestScrub_leavesNoSecretWhereverItStands(t *testing.T) {
	for name, secret := range secrets {
		for _, said := range []string{"it is %s", "(%s): no", "'%s' can't be reached", "server=%s code=UNAVAILABLE", "%s", "x%[1]s", "%[1]s,%[1]s;%[1]s"} {
			left := Scrub(fmt.Sprintf(said, secret), names)
			if strings.Contains(left, secret) && !strings.HasPrefix(said, "x") {
				t.Errorf("%s in %q: %s", name, said, left)
			}
		}
		for other, second := range secrets {
			left := Scrub(secret+" "+second, names)
			if strings.Contains(left, secret) || strings.Contains(left, second) {
				t.Errorf("%s beside %s: %s", name, other, left)
			}
		}
	}
}

func TestScrub_leavesWhatSaysNothingOfAnybody(t *testing.T) {
	for _, said := range []string{
		"sidecar_ready version=0.1.0.dev577 pid=17", "weights_damaged file=model-00001-of-00004.safetensors",
		"session_models_not_reconciled_after_all", "Annabel and Hanna are words", "",
	} {
		if left := Scrub(said, names); left != said {
			t.Errorf("%q became %q", said, left)
		}
	}
}

// opened is a file in a folder of its own.
func opened(t *testing.T) (*File, string) {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "logs")
	file, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file, folder
}

func TestFile_isForThisUserAlone_andBounded(t *testing.T) {
	file, folder := opened(t)
	file.most = 1000
	for i := range 200 {
		if _, err := fmt.Fprintf(file, "{\"line\":%d,\"text\":\"%s\"}\n", i, strings.Repeat("x", 80)); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 1+oldFiles {
		t.Fatalf("%v, %v", left, err)
	}
	for _, entry := range left {
		info, err := entry.Info()
		if err != nil || info.Size() > 1000 || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestFile_whenItIsALink_isNotOpened(t *testing.T) {
	folder := t.TempDir()
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Symlink(elsewhere, filepath.Join(folder, serverFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil {
		t.Error("it was opened")
	}
	if _, err := os.Stat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it was made")
	}
}

func TestHandler_keepsWhatOurPartsSay_withoutSecretsAndSentencesOfTheSidecar(t *testing.T) {
	file, folder := opened(t)
	var shown bytes.Buffer
	log := slog.New(&handler{Handler: slog.NewTextHandler(&shown, nil), file: file})
	log.With("before", 1).WithGroup("of").Warn("event", "error", errors.New("no 192.0.2.17"), "code", secrets["a code"])
	log.Info("failed", "error", status.Error(codes.NotFound, "Carl is not a member"))
	log.Debug("unseen")
	entries, err := Read(folder)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	first, second := entries[0], entries[1]
	if first.Said != "event before=1 of.error=no <address> of.code=<code>" || first.Level != "WARN" || first.From != "server" || first.Where != "logbook" {
		t.Errorf("%+v", first)
	}
	if second.Said != "failed error=NotFound" {
		t.Errorf("%+v", second)
	}
	if !strings.Contains(shown.String(), "Carl") || strings.Contains(shown.String(), "unseen") {
		t.Errorf("%s", shown.String())
	}
}

func TestHandler_leavesOutWhatStockSays(t *testing.T) {
	file, folder := opened(t)
	h := &handler{Handler: slog.DiscardHandler, file: file}
	if err := h.Handle(t.Context(), slog.NewRecord(time.Now(), slog.LevelInfo, "a prompt", 0)); err != nil {
		t.Fatal(err)
	}
	if entries, err := Read(folder); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestKeep_whenSomebodySetsAnotherLogger_keepsItsRecordsToo(t *testing.T) {
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	file, folder := opened(t)
	for range 2 {
		slog.SetDefault(slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil)))
		Keep(file)
		Keep(file)
		slog.Info("event")
	}
	Keep(nil)
	if entries, err := Read(folder); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestRead_isInTheOrderOfTime_ofAllFiles_withoutWhatIsTornOrCommandsATerminal(t *testing.T) {
	folder := t.TempDir()
	for name, lines := range map[string]string{
		serverFile:         entry("03", "INFO", "three"),
		serverFile + ".1":  entry("01", "INFO", "one"),
		sidecarFile:        entry("02", "WARN", `two\u001b[2J`) + `{"at":"2026-11-28T10:00:04Z","sai` + "\n[]\n" + entry("05", "ERROR", "five"),
		sidecarFile + ".9": entry("00", "INFO", "not ours"),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := Read(folder)
	var said []string
	for _, one := range entries {
		said = append(said, one.Said)
	}
	if err != nil || strings.Join(said, " ") != "one two\uFFFD[2J three five" {
		t.Errorf("%q, %v", said, err)
	}
	if none, err := Read(filepath.Join(folder, "nowhere")); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
}

func TestEntry_isAtLeastALevel(t *testing.T) {
	for _, row := range []struct {
		level, least string
		want         bool
	}{{"WARN", "info", true}, {"INFO", "info", true}, {"DEBUG", "INFO", false}, {"ERROR", "warn", true}, {"NOISE", "debug", false}} {
		if got := (Entry{Level: row.level}).IsAtLeast(row.least); got != row.want {
			t.Errorf("%s of at least %s: %t", row.level, row.least, got)
		}
	}
}

var errEnough = errors.New("enough")

func TestFollow_tellsWhatComes_alsoWhenTheFileBeginsAnew(t *testing.T) {
	file, folder := opened(t)
	file.most = 150
	write := func(second, said string) {
		if _, err := file.Write([]byte(entry(second, "INFO", said))); err != nil {
			t.Error(err)
		}
	}
	write("00", "before")
	var came []string
	next := map[string]func(){"": func() { write("01", "one") }, "one": func() { write("02", "two") }, "two": func() { write("03", "three") }}
	tails := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		tails <- Follow(ctx, folder, func(one Entry) error {
			came = append(came, one.Said)
			if goOn, is := next[one.Said]; is {
				goOn()
				return nil
			}
			return errEnough
		})
	}()
	time.AfterFunc(2*lookEvery, next[""])
	if err := <-tails; !errors.Is(err, errEnough) || strings.Join(came, " ") != "one two three" {
		t.Errorf("%v, %v", came, err)
	}
}

func entry(second, level, said string) string {
	return fmt.Sprintf(`{"at":"2026-11-28T10:00:%sZ","level":"%s","from":"sidecar","where":"x","said":"%s"}`+"\n", second, level, said)
}
