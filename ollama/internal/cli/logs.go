package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/logbook"
)

// newestEntries is how many are shown of what is kept.
const newestEntries = 500

func logsCommand() *cobra.Command {
	var follow bool
	var level string
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show what the server and the sidecar of this machine said",
		Long: "The latest 500 entries, also while no server runs: they are in the folder logs of the Kafila home. No names of\n" +
			"members, addresses, codes, keys or prompts are in them.",
		Example: "  ollama session logs --level warn\n" +
			"  ollama session logs -f",
		Args:              arguments(0, 0),
		PersistentPreRunE: needsNoServer,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(logbook.Levels, strings.ToUpper(level)) {
				return fmt.Errorf("there is no level %q: choose one of %s", level, strings.ToLower(strings.Join(logbook.Levels, ", ")))
			}
			folder, err := logbook.Folder()
			if err != nil {
				return err
			}
			return showLogs(cmd.Context(), folder, level, follow, screenOf(cmd))
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "Go on with what comes, until Ctrl-C")
	cmd.Flags().StringVar(&level, "level", "info", "Show entries of this `LEVEL` and above: debug, info, warn, error")
	addJSON(cmd)
	return cmd
}

// needsNoServer stands for stock's check that one runs.
func needsNoServer(*cobra.Command, []string) error { return nil }

func showLogs(ctx context.Context, folder, level string, follow bool, s screen) error {
	kept, err := logbook.Read(folder)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(kept, func(entry logbook.Entry) bool { return !entry.IsAtLeast(level) })
	for _, entry := range shown[max(0, len(shown)-newestEntries):] {
		if err := s.entry(entry); err != nil {
			return err
		}
	}
	if !follow {
		if len(shown) == 0 {
			s.say("Nothing of that level was said here.")
		}
		return nil
	}
	return logbook.Follow(ctx, folder, func(entry logbook.Entry) error {
		if !entry.IsAtLeast(level) {
			return nil
		}
		return s.entry(entry)
	})
}

// entry prints one of the log's.
func (s screen) entry(entry logbook.Entry) error {
	if s.asJSON {
		encoder := json.NewEncoder(s.out)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(entry)
	}
	_, err := fmt.Fprintf(s.out, "%s %-5s %-7s %s\n", entry.At.Local().Format(time.DateTime), entry.Level, entry.From, entry.Said)
	for _, line := range strings.Split(strings.TrimSpace(entry.Traceback), "\n") {
		if line != "" && err == nil {
			_, err = fmt.Fprintf(s.out, "    %s\n", line)
		}
	}
	return err
}
