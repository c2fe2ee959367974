package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

// planted are secrets as they stand in what a report is made of.
var planted = map[string]string{
	"a member": "Anna's Mac", "a guest": "mini", "a code": "7-ocean-velvet-lamp", "an address": "198.51.100.4", "an IPv6 one": "2001:db8::17",
	"a place": "rv.example.org:7770", "a key": "5b6f9b1de3a7c4f25b6f9b1de3a7c4f2", "a fingerprint": "6aviinzr5n6z3x35c6c2",
}

// secretive is a session that tells all of them wherever it can.
func secretive() *pb.Session {
	all := ""
	for _, secret := range planted {
		all += secret + " "
	}
	session := proto.CloneOf(fake.ReadySession())
	session.Code = "7-ocean-velvet-lamp@rv.example.org:7770#6aviinzr5n6z3x35c6c2"
	session.Self, session.Host = "Anna's Mac", "mini"
	session.Doing, session.Failure, session.RendezvousNote, session.BetterPlan = all, all, all, all
	session.Notices = []string{all}
	session.Members = []*pb.Member{{Name: "Anna's Mac", Doing: all, IfLost: all, WaitsFor: all, Device: "gpu: Apple M3"}, {Name: "mini"}}
	session.PlanJson = `{"stages":[{"member":"Anna's Mac","start":0,"end":30}],"notes":["` + all + `"]}`
	session.LastTraceJson = fake.Record
	return session
}

func TestReport_hasWhatHelps_andNoSecretPlantedAnywhere(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{secretive()}}).Client
	logs := t.TempDir()
	line := `{"at":"2026-11-28T10:00:00Z","level":"WARN","from":"sidecar","where":"kafila_sidecar.net","said":"link_down peer=mini of Anna's Mac at 198.51.100.4 and [2001:db8::17]:7 by 7-ocean-velvet-lamp rv.example.org:7770 5b6f9b1de3a7c4f25b6f9b1de3a7c4f2","traceback":"at 198.51.100.4\nmini"}`
	if err := os.WriteFile(filepath.Join(logs, "sidecar.jsonl"), []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := packed(t, c, logs)
	for file, text := range files {
		for name, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s: %s", file, name, text)
			}
		}
	}
	for file, words := range map[string][]string{
		"about.json":    {"kafila version is", "system"},
		"sessions.json": {`"plan"`, `"start":0`, "member-1", "gpu: Apple M3", `"doing"`},
		"doctor.json":   {`"udp":"blocked"`},
		"traces.jsonl":  {`"ttft_s":2`, "member-2"},
		"logs.jsonl":    {"link_down peer=", "WARN"},
		"weights.json":  {},
		"lacking.jsonl": {"plans.jsonl"}, // which this sidecar does not know
	} {
		for _, word := range append(words, "") {
			if !strings.Contains(files[file], word) || files[file] == "" {
				t.Errorf("%s has no %q: %s", file, word, files[file])
			}
		}
	}
}

func TestReport_whereNoServerRuns_hasTheLogs(t *testing.T) {
	files := packed(t, control.New(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, ""), t.TempDir())
	if !strings.Contains(files["lacking.jsonl"], "no Ollama server answers") || !strings.Contains(files["about.json"], "versions") {
		t.Errorf("%v", files)
	}
}

func TestReport_whenTheFileIsThere_leavesIt(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := packReport(t.Context(), c, t.TempDir(), file, nowhere); !errors.Is(err, os.ErrExist) {
		t.Errorf("%v", err)
	}
}

// packed are the files of a report, by name.
func packed(t *testing.T, c *control.Client, logs string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.tar.gz")
	if printed := printedBy(t, false, func(s screen) error { return packReport(t.Context(), c, logs, path, s) }); printed != path+"\n" {
		t.Errorf("%s", printed)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "kafila-report/")] = string(text)
	}
}
