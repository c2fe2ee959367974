package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"kafila/ollama/pb"
)

// withoutJSON are the commands that show nothing which a program could read: the page is opened, a report is a file, an address is a
// line.
var withoutJSON = map[string]bool{"page": true, "report": true, "rendezvous": true, "rendezvous set": true, "rendezvous unset": true}

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
		if takes == withoutJSON[name] || takes != (printed[name] != "") {
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

func namesBelow(command *cobra.Command, before string) (names []string) {
	for _, one := range command.Commands() {
		names = append(names, before+one.Name())
		names = append(names, namesBelow(one, before+one.Name()+" ")...)
	}
	return names
}
