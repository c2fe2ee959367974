package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"kafila/ollama/pb"
)

func TestDoctor_printsTheFindingsAsTheyAre_andIsNoFailure(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	for asJSON, want := range map[bool]string{false: "! UDP  is blocked\n", true: `"udp":"blocked"`} {
		printed := printedBy(t, func() error { return doctor(t.Context(), c, &pb.DoctorRequest{}, asJSON) })
		if !strings.Contains(strings.ReplaceAll(printed, `": `, `":`), want) { // protojson varies its spaces
			t.Errorf("%s", printed)
		}
	}
}

func TestDoctor_whenTheAddressIsNone_fails(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	err := doctor(t.Context(), c, &pb.DoctorRequest{Rendezvous: "nonsense"}, false)
	if err == nil || err.Error() != "nonsense is no address" {
		t.Errorf("%v", err)
	}
}

// printedBy is what a command that succeeds prints on standard output.
func printedBy(t *testing.T, command func() error) string {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	before := os.Stdout
	os.Stdout = write
	err = command()
	os.Stdout = before
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
