package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const mostWrong = 2 // letters that are wrong, missing, too many or swapped in a word that may have been meant

// onlyCommands is for a command that takes no arguments but has others below it: what is none of them may be one
// misspelt.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, one := range cmd.Commands() {
		if one.IsAvailableCommand() {
			names = append(names, one.Name())
		}
	}
	hint := meant(args[0], names, "")
	if hint == "" && strings.Contains(cmd.Use, " ") {
		return fmt.Errorf("usage: %s", cmd.UseLine())
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}

// flagError says what a person typed wrongly, without the name of the function that couldn't read it.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := strings.CutPrefix(err.Error(), "unknown flag: --"); ok {
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
		if hint := meant(unknown, names, "--"); hint != "" {
			return fmt.Errorf("%w%s", err, hint)
		}
	}
	typed, _, _ := strings.Cut(err.Error(), ": strconv.")
	return fmt.Errorf("%s: `%s --help` shows what it takes", typed, cmd.CommandPath())
}

// meant asks whether one of the names nearest to a word was meant; empty where none is near.
func meant(word string, names []string, prefix string) string {
	near := map[int][]string{}
	for _, name := range names {
		wrong := wrongLetters(word, name)
		near[wrong] = append(near[wrong], prefix+name)
	}
	for wrong := 0; wrong <= min(mostWrong, len(word)/2); wrong++ {
		if len(near[wrong]) > 0 {
			return ": did you mean " + strings.Join(near[wrong], " or ") + "?"
		}
	}
	return ""
}

// wrongLetters is Damerau and Levenshtein's distance, of neighbours that are swapped once (optimal string alignment).
func wrongLetters(one, other string) int {
	a, b := []rune(one), []rune(other)
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := 1; j <= len(b); j++ {
			rows[0][j] = j
			if i == 0 {
				continue
			}
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
