package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// nowhere is a screen that nobody looks at.
var nowhere = screen{in: strings.NewReader(""), out: io.Discard, aside: io.Discard}

// printedBy is what a command that succeeds prints as its result.
func printedBy(t *testing.T, asJSON bool, command func(screen) error) string {
	t.Helper()
	var printed bytes.Buffer
	if err := command(screen{out: &printed, aside: io.Discard, asJSON: asJSON}); err != nil {
		t.Fatal(err)
	}
	return printed.String()
}
