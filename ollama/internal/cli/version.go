package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	upstream "github.com/ollama/ollama/version"

	"kafila/ollama/internal/version"
)

// addVersion has stock's --version tell Kafila's versions too, below its own lines, and gives every other command one
// that needs no server.
func addVersion(root *cobra.Command) error {
	stock := root.Run
	if stock == nil || root.Flags().Lookup("version") == nil {
		return errors.New("this build does not fit its Ollama: `ollama` has no --version")
	}
	root.Run = func(cmd *cobra.Command, args []string) {
		stock(cmd, args)
		if asked, err := cmd.Flags().GetBool("version"); err == nil && asked {
			fmt.Fprint(cmd.OutOrStdout(), ownVersions())
		}
	}
	giveVersion(root)
	return nil
}

// giveVersion gives what is below a command a --version; cobra answers it before it looks at anything else.
func giveVersion(parent *cobra.Command) {
	for _, command := range parent.Commands() {
		if command.Flags().Lookup("version") == nil {
			command.Version = version.Kafila
			command.SetVersionTemplate(fmt.Sprintf("ollama version is %s\n%s", upstream.Version, ownVersions()))
			command.Flags().BoolP("version", shorthand(command), false, "Show version information")
		}
		giveVersion(command)
	}
}

// shorthand is "v", where the command means nothing else by it.
func shorthand(command *cobra.Command) string {
	if command.Flags().ShorthandLookup("v") == nil {
		return "v"
	}
	return ""
}

func ownVersions() string {
	return fmt.Sprintf("kafila version is %s\nprotocol version is %s\n", version.Kafila, version.Protocol)
}
