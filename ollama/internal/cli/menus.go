package cli

import (
	"errors"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"github.com/spf13/cobra"
)

// colourMenus asks the terminal for its background before stock's menus are drawn, and at no other time: one that does
// not answer takes five seconds to be given up.
func colourMenus(root *cobra.Command) error {
	launch, _, err := root.Find([]string{"launch"})
	if err != nil || launch.RunE == nil || root.Run == nil {
		return errors.New("this build does not fit its Ollama: it has no menu, or no `launch`")
	}
	menu, launchMenu := root.Run, launch.RunE
	root.Run = func(cmd *cobra.Command, args []string) {
		if asked, err := cmd.Flags().GetBool("version"); err != nil || !asked {
			lipgloss.SetHasDarkBackground(termenv.HasDarkBackground())
		}
		menu(cmd, args)
	}
	launch.RunE = func(cmd *cobra.Command, args []string) error {
		lipgloss.SetHasDarkBackground(termenv.HasDarkBackground())
		return launchMenu(cmd, args)
	}
	return nil
}
