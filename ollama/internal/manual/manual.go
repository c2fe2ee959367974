// Package manual writes what packages bring beside the program: manual pages, shells' completions, and the reference of
// the documentation's site, all from the commands themselves. It imports nothing of ours.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Write fills a folder as packages lay it out below their prefix (share/man/man1 and so on), with the reference in
// commands.md. version is told on each manual page, which says no date, so that the same commands make the same pages.
// words is how a sentence names commands.
func Write(root *cobra.Command, folder, version string, words func(string) string) error {
	hush(root)
	for _, one := range all(root, version) {
		var text bytes.Buffer
		if err := one.generate(&text); err != nil {
			return err
		}
		path := filepath.Join(folder, filepath.FromSlash(one.place))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(words(text.String())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A page is a file below the folder.
type page struct {
	place    string
	generate func(*bytes.Buffer) error
}

// all has the reference first: making completions adds commands that are none of people's.
func all(root *cobra.Command, version string) []page {
	made := []page{{"commands.md", func(to *bytes.Buffer) error { return reference(to, root) }}}
	for _, command := range append([]*cobra.Command{root}, listed(root)...) {
		place := "share/man/man1/" + strings.ReplaceAll(command.CommandPath(), " ", "-") + ".1"
		made = append(made, page{place, func(to *bytes.Buffer) error { return manual(to, command, version) }})
	}
	name := root.Name()
	return append(made,
		page{"share/bash-completion/completions/" + name, func(to *bytes.Buffer) error { return root.GenBashCompletionV2(to, true) }},
		page{"share/zsh/site-functions/_" + name, func(to *bytes.Buffer) error { return root.GenZshCompletion(to) }},
		page{"share/fish/vendor_completions.d/" + name + ".fish", func(to *bytes.Buffer) error { return root.GenFishCompletion(to, true) }},
	)
}

// manual is one command's page, without a date.
func manual(to *bytes.Buffer, command *cobra.Command, version string) error {
	header := &doc.GenManHeader{Section: "1", Source: "Kafila " + version, Manual: "Kafila", Date: &time.Time{}}
	var dated bytes.Buffer
	if err := doc.GenMan(command, header, &dated); err != nil {
		return err
	}
	_, err := to.Write(bytes.Replace(dated.Bytes(), []byte(`"Jan 0001"`), []byte(`""`), 1))
	return err
}

// hush leaves out what a generator says of itself, with a date in it, and has every help be whole.
func hush(command *cobra.Command) {
	command.DisableAutoGenTag = true
	command.InitDefaultHelpFlag() // else a command's help has it only once it was asked for
	for _, one := range command.Commands() {
		hush(one)
	}
}

// reference is every command with what its help says.
func reference(to *bytes.Buffer, root *cobra.Command) error {
	fmt.Fprintf(to, "# Commands\n\nWhat `%s COMMAND --help` says, from the commands themselves.\n", root.Name())
	for _, command := range listed(root) {
		fmt.Fprintf(to, "\n## %s\n\n%s\n", command.CommandPath(), told(command))
	}
	return nil
}

// told is a command's help, without the lines that each one ends with.
func told(command *cobra.Command) string {
	var help bytes.Buffer
	command.SetOut(&help)
	defer command.SetOut(nil)
	command.Help() //nolint:errcheck // a buffer takes all
	return "```text\n" + strings.TrimSpace(help.String()) + "\n```"
}

// listed are the commands that help shows, each before its own.
func listed(parent *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, one := range parent.Commands() {
		if one.IsAvailableCommand() {
			all = append(append(all, one), listed(one)...)
		}
	}
	return all
}
