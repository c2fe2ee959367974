package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"kafila/ollama/pb"
)

func TestSessionCommands_allTakeJSON_andTheDocumentSaysWhatTheyPrint(t *testing.T) {
	document, err := os.ReadFile("../../../docs/numbers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(document), "## JSON for programs")
	printed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\| (.*) \\|$").FindAllStringSubmatch(table, -1) {
		for _, name := range regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(row[1], -1) {
			printed[name[1]] = row[2]
		}
	}
	session := sessionCommand(func(*cobra.Command, []string) error { return nil })
	for _, name := range namesBelow(session, "") {
		command, _, err := session.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		takes := command.Flags().Lookup("json") != nil
		if !takes || printed[name] == "" {
			t.Errorf("%s: takes --json: %t, and the document says %q", name, takes, printed[name])
		}
		delete(printed, name)
	}
	if len(printed) > 0 {
		t.Errorf("there are no such commands: %v", printed)
	}
}

func TestDocument_namesMessagesThatThereAre(t *testing.T) {
	document, err := os.ReadFile("../../../docs/numbers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(document), "## JSON for programs")
	messages := regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(table, -1)
	if len(messages) < 6 {
		t.Fatalf("%v", messages)
	}
	home := pb.File_sidecar_proto.Package()
	for _, message := range messages {
		if _, err := protoregistry.GlobalFiles.FindDescriptorByName(home.Append(protoreflect.Name(message[1]))); err != nil {
			t.Errorf("%s: %v", message[1], err)
		}
	}
}

func TestCommands_whatIsNoMessage_isAnObjectToo(t *testing.T) {
	home := serviceHome(t, map[string]string{"systemctl": `case "$*" in *is-active*) echo active;; esac`})
	t.Setenv("KAFILA_HOME", filepath.Join(home, "k%f#"))
	if err := os.MkdirAll(filepath.Join(home, "k%f#"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "k%f#", "token"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(home, "r.tar.gz")
	rows := []struct {
		typed string
		want  map[string]any
	}{
		{"session rendezvous --json", map[string]any{"address": ""}},
		{"session rendezvous set 192.0.2.7:7770 --json", map[string]any{"address": "192.0.2.7:7770"}},
		{"session rendezvous --json", map[string]any{"address": "192.0.2.7:7770"}},
		{"session rendezvous unset --json", map[string]any{"address": ""}},
		{"session report --json --output " + report, map[string]any{"file": report}},
	}
	if runtime.GOOS == "linux" { // the programs of this test are systemd's
		rows = append(rows, []struct {
			typed string
			want  map[string]any
		}{
			{"service status --json", map[string]any{"installed": false, "running": false}},
			{"service install --json", map[string]any{"installed": true, "running": true, "outdated": false}},
			{"service uninstall --json", map[string]any{"installed": false, "kind": "systemd unit of this user"}},
		}...)
	}
	for _, row := range rows {
		var told map[string]any
		if printed := output(t, row.typed); json.Unmarshal([]byte(printed), &told) != nil {
			t.Errorf("%s: %s", row.typed, printed)
		}
		for field, value := range row.want {
			if told[field] != value {
				t.Errorf("%s: %s is %v, not %v", row.typed, field, told[field], value)
			}
		}
	}
}

func namesBelow(command *cobra.Command, before string) (names []string) {
	for _, one := range command.Commands() {
		names = append(names, before+one.Name())
		names = append(names, namesBelow(one, before+one.Name()+" ")...)
	}
	return names
}
