package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/env"
	"kafila/ollama/internal/home"
)

// rendezvousCommand keeps where sessions meet, so that codes stay short without a variable. It needs no server.
func rendezvousCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rendezvous [set ADDRESS|unset]",
		Short: "Keep where sessions meet, so that codes are short",
		Long: "Once everybody has said where sessions meet, a code is a number and three words. It is kept in Kafila's folder, and\n" +
			"this user's server heeds it from the next session on; " + env.Rendezvous + ", where it is set for the server, goes before it.",
		Example: "  ollama session rendezvous set rendezvous.example.org:7770#mcwqzspzi5esea64axpg\n" +
			"  ollama session rendezvous",
		Args:              onlyCommands,
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE:              func(cmd *cobra.Command, _ []string) error { return tellRendezvous(screenOf(cmd)) },
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "set ADDRESS", Short: "Keep a rendezvous' address, as kafila-rendezvous prints it", Args: arguments(1, 1),
			RunE: func(cmd *cobra.Command, args []string) error { return keepRendezvous(args[0], screenOf(cmd)) },
		},
		&cobra.Command{
			Use: "unset", Short: "Keep none: hosts embed one", Args: arguments(0, 0),
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := home.ForgetRendezvous(); err != nil {
					return err
				}
				return screenOf(cmd).tellAddress("", "Forgotten: who opens a session embeds a rendezvous.")
			},
		},
	)
	addJSON(cmd)
	for _, one := range cmd.Commands() {
		addJSON(one)
	}
	return cmd
}

func tellRendezvous(s screen) error {
	kept, err := home.Rendezvous()
	switch {
	case err != nil:
		return err
	case s.asJSON || kept == "":
		return s.tellAddress(kept, "No rendezvous is kept: `ollama session rendezvous set ADDRESS` keeps one.")
	}
	_, err = fmt.Fprintln(s.out, kept)
	return err
}

// tellAddress tells a program the address that is kept now, and a person a sentence on it.
func (s screen) tellAddress(kept, sentence string) error {
	if s.asJSON {
		return s.object(addressTold{kept})
	}
	s.say(sentence)
	return nil
}

func keepRendezvous(said string, s screen) error {
	address, err := home.KeepRendezvous(said)
	if err != nil {
		return err
	}
	if err := s.tellAddress(address, "Sessions meet at "+address+" from now on."); err != nil {
		return err
	}
	if set := os.Getenv(env.Rendezvous); set != "" && set != address {
		s.say("Note: " + env.Rendezvous + " is set here to " + set + ", and goes before it where it is set for the server.")
	}
	return nil
}
