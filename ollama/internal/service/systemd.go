package service

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed templates/kafila.service
var unitText string

var unit = template.Must(template.New("unit").Funcs(template.FuncMap{"execWord": execWord, "percent": percent}).Parse(unitText))

// systemd is a unit of the user's manager, or of the machine's.
func systemd(wish Wish, variables []Variable) (Service, error) {
	if strings.ContainsAny(wish.Program, "\"'\\") {
		return Service{}, fmt.Errorf("systemd starts no program whose path has quotes or backslashes: move %s to another folder", wish.Program)
	}
	ctl, config, folder := []string{"systemctl", "--user"}, wish.Config, filepath.Join(wish.Config, "systemd", "user")
	kind, log := "systemd unit of this user", "journalctl --user -u kafila"
	hint := "it ends when you log out, unless you run once: loginctl enable-linger"
	if wish.Machine {
		ctl, config, folder = []string{"systemctl"}, wish.System, filepath.Join(wish.System, "systemd", "system")
		kind, log, hint = "systemd unit of this machine", "journalctl -u kafila", ""
	}
	settings := filepath.Join(config, "kafila", "environment")
	var text bytes.Buffer
	if err := unit.Execute(&text, struct {
		Wish
		Settings string
	}{wish, settings}); err != nil {
		return Service{}, err
	}
	asking := func(words ...string) []string { return append(append([]string(nil), ctl...), words...) }
	return Service{
		Kind: kind, Unit: filepath.Join(folder, "kafila.service"), Log: log, Hint: hint,
		files: []file{{filepath.Join(folder, "kafila.service"), text.Bytes()}, {settings, settingsText(variables)}},
		start: [][]string{asking("daemon-reload"), asking("enable", "kafila.service"), asking("restart", "kafila.service")},
		stop:  [][]string{asking("disable", "--now", "kafila.service")},
		state: asking("is-active", "kafila.service"),
		isUp:  func(said string) bool { return strings.TrimSpace(said) == "active" },
	}, nil
}

// settingsText is what systemd.exec(5) reads as an EnvironmentFile.
func settingsText(variables []Variable) []byte {
	var text bytes.Buffer
	text.WriteString("# What was set where `kafila service install` ran; it writes this anew.\n")
	for _, one := range variables {
		fmt.Fprintf(&text, "%s=\"%s\"\n", one.Name, strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`).Replace(one.Value))
	}
	return text.Bytes()
}

// execWord is the program of a command line, as systemd.service(5) reads it.
func execWord(word string) string { return `"` + percent(word) + `"` }

// percent is a path in which % means itself.
func percent(path string) string { return strings.ReplaceAll(path, "%", "%%") }
