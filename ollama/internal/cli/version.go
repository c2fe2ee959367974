package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/version"
)

// addVersion has stock's --version tell Kafila's version too, below its own lines.
func addVersion(root *cobra.Command) error {
	stock := root.Run
	if stock == nil || root.Flags().Lookup("version") == nil {
		return errors.New("this build does not fit its Ollama: `ollama` has no --version")
	}
	root.Run = func(cmd *cobra.Command, args []string) {
		stock(cmd, args)
		if asksVersion(cmd) {
			fmt.Fprintln(cmd.OutOrStdout(), "kafila version is "+version.Kafila)
		}
	}
	return nil
}

// asksVersion is true of a command that has --version and was given it.
func asksVersion(cmd *cobra.Command) bool {
	asked, err := cmd.Flags().GetBool("version")
	return err == nil && asked
}
