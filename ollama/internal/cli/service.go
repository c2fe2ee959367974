package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/service"
)

const serviceHelp = `The system runs the server (serve) then, and starts it again when it ends by a fault: by systemd on Linux, by launchd
on macOS. It gets the variables KAFILA_…, OLLAMA_…, HF_… and those of proxies that are set where "install" runs; set
others and install it again to change them. What the server keeps, in ~/.kafila and ~/.ollama, is left alone.`

// systemTimeout is how long a command of the system's may take; stopping waits for the server's own end.
const systemTimeout = 90 * time.Second

// serviceCommand is `ollama service …`.
func serviceCommand() *cobra.Command {
	var machine bool
	group := &cobra.Command{
		Use: "service", Short: "Have the system run the server", Long: serviceHelp, Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.PersistentFlags().BoolVar(&machine, "system", false, "At the machine's start, as the user who runs sudo")
	for _, one := range []struct {
		name, short string
		act         func(context.Context, service.Service, io.Writer) error
	}{
		{"install", "Install the service and start it, or install it anew", installService},
		{"status", "Say whether the service is installed, and whether it runs", serviceStatus},
		{"uninstall", "Stop the service and remove it; models, weights and keys stay", uninstallService},
	} {
		group.AddCommand(&cobra.Command{
			Use: one.name, Short: one.short, Args: arguments(0, 0),
			Example: "  ollama service " + one.name + "\n  sudo ollama service " + one.name + " --system",
			RunE: func(cmd *cobra.Command, _ []string) error {
				wanted, err := wantedService(machine)
				if err != nil {
					return err
				}
				s := screenOf(cmd)
				if !s.asJSON {
					return one.act(cmd.Context(), wanted, s.out)
				}
				if err := one.act(cmd.Context(), wanted, io.Discard); err != nil {
					return err
				}
				now := wanted.Condition(cmd.Context(), runSystem)
				return s.object(serviceTold{wanted.Kind, wanted.Unit, wanted.Log, now.Installed, now.Running, now.Outdated})
			},
		})
	}
	for _, one := range group.Commands() {
		addJSON(one)
	}
	group.SetFlagErrorFunc(flagError)
	return group
}

// serviceTold is what a program is told of a service.
type serviceTold struct {
	Kind      string `json:"kind"`
	Unit      string `json:"unit"`
	Log       string `json:"log"`
	Installed bool   `json:"installed"`
	Running   bool   `json:"running"`
	Outdated  bool   `json:"outdated"`
}

func installService(ctx context.Context, s service.Service, out io.Writer) error {
	if err := s.Install(ctx, runSystem); err != nil {
		return err
	}
	fmt.Fprintf(out, "The server runs as a %s: %s\nIts log: %s\n", s.Kind, s.Unit, s.Log)
	if s.Hint != "" {
		fmt.Fprintln(out, "Note: "+s.Hint)
	}
	return nil
}

func serviceStatus(ctx context.Context, s service.Service, out io.Writer) error {
	now := s.Condition(ctx, runSystem)
	switch {
	case !now.Installed:
		fmt.Fprintf(out, "There is no %s: `ollama service install` makes one.\n", s.Kind)
		return nil
	case now.Running:
		fmt.Fprintf(out, "The %s runs: %s\n", s.Kind, s.Unit)
	default:
		fmt.Fprintf(out, "The %s is installed and does not run: %s\n", s.Kind, s.Unit)
	}
	fmt.Fprintln(out, "Its log: "+s.Log)
	if now.Outdated {
		fmt.Fprintln(out, "It is not as `ollama service install` would make it now: it may start another program.")
	}
	return nil
}

func uninstallService(ctx context.Context, s service.Service, out io.Writer) error {
	was, err := s.Uninstall(ctx, runSystem)
	if err != nil {
		return err
	}
	if !was {
		fmt.Fprintf(out, "There is no %s.\n", s.Kind)
		return nil
	}
	fmt.Fprintf(out, "The %s is stopped and removed. Models, weights and keys stay.\n", s.Kind)
	return nil
}

// wantedService is what is asked for on this machine.
func wantedService(machine bool) (service.Service, error) {
	wish, err := wishHere(machine)
	if err != nil {
		return service.Service{}, err
	}
	variables, err := service.Kept(os.Environ())
	if err != nil {
		return service.Service{}, err
	}
	return service.On(runtime.GOOS, wish, variables)
}

// wishHere is for who runs this, or, for the machine, for who runs sudo.
func wishHere(machine bool) (service.Wish, error) {
	program, err := os.Executable()
	if err != nil {
		return service.Wish{}, err
	}
	owner, err := serviceOwner(machine)
	if err != nil {
		return service.Wish{}, err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return service.Wish{}, fmt.Errorf("services are for users with numbers, and %s is %s", owner.Username, owner.Uid)
	}
	system := "/etc"
	if runtime.GOOS == "darwin" {
		system = "/Library"
	}
	return service.Wish{
		Program: program, Machine: machine, User: owner.Username, Home: owner.HomeDir, UID: uid,
		Config: configFolder(owner.HomeDir), System: system,
	}, nil
}

// serviceOwner is who the server runs as. A machine's service that ran as root would lend the network root's rights.
func serviceOwner(machine bool) (*user.User, error) {
	if !machine {
		owner, err := user.Current()
		if home, homeErr := os.UserHomeDir(); err == nil && homeErr == nil {
			owner.HomeDir = home
		}
		return owner, err
	}
	name := os.Getenv("SUDO_USER")
	if os.Geteuid() != 0 || name == "" || name == "root" {
		return nil, errors.New("a service of this machine is installed with sudo, by the user whose it is to be: sudo ollama service install --system")
	}
	return user.Lookup(name)
}

func configFolder(home string) string {
	if folder := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(folder) {
		return folder
	}
	return filepath.Join(home, ".config")
}

// runSystem runs a command of the system's.
func runSystem(ctx context.Context, command ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, systemTimeout)
	defer stop()
	said, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("this system has no %s", command[0])
	}
	return string(said), err
}
