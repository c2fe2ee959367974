package cli

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/ollama/ollama/envconfig"

	"kafila/ollama/internal/home"
)

const pageHelp = `The page shows the ring and who holds what, and has buttons for what these commands do, and a chat. It belongs to this
machine's server, and is for its owner: the address that is opened carries the token of this user, which the page takes
out of sight at once. Don't pass that address on.`

func pageCommand() *cobra.Command {
	var onlyPrint bool
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Open the page on which sessions are seen and run",
		Long:  pageHelp,
		Args:  arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := pageAddress()
			if err != nil {
				return err
			}
			s := screenOf(cmd)
			switch {
			case s.asJSON:
				return s.object(addressTold{address})
			case onlyPrint || openInBrowser(address) != nil:
				fmt.Fprintln(s.out, address)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "Print the address, and open nothing")
	addJSON(cmd)
	return cmd
}

// addressTold is what a program is told of the page, or of a rendezvous.
type addressTold struct {
	Address string `json:"address"` // empty: none
}

// pageAddress is that of this machine's page, with the owner's token where no server gets to see it: behind the #.
func pageAddress() (string, error) {
	token := home.ReadToken()
	if token == "" {
		return "", errors.New("this user's server has left no token: start it with `ollama serve`, as the same user")
	}
	address := envconfig.Host().JoinPath("session")
	address.Fragment = url.Values{"token": {token}}.Encode()
	return address.String(), nil
}

// openInBrowser has the desktop open an address; it fails where there is none.
func openInBrowser(address string) error {
	opener := map[string]string{"darwin": "open", "linux": "xdg-open"}[runtime.GOOS]
	if opener == "" {
		return errors.ErrUnsupported
	}
	return exec.Command(opener, address).Run()
}
