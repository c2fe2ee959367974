package service

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed templates/kafila.plist
var plistText string

var plist = template.Must(template.New("plist").Funcs(template.FuncMap{"xml": escaped}).Parse(plistText))

const label = "kafila.serve"

// launchd is an agent of the user's, or a daemon of the machine's.
func launchd(wish Wish, variables []Variable) (Service, error) {
	kind, domain := "launchd agent of this user", fmt.Sprintf("gui/%d", wish.UID)
	folder := filepath.Join(wish.Home, "Library", "LaunchAgents")
	if wish.Machine {
		kind, domain, folder = "launchd daemon of this machine", "system", filepath.Join(wish.System, "LaunchDaemons")
	}
	path, log := filepath.Join(folder, label+".plist"), filepath.Join(wish.Home, "Library", "Logs", "kafila.log")
	var text bytes.Buffer
	if err := plist.Execute(&text, struct {
		Wish
		Label, Log  string
		Environment []Variable
	}{wish, label, log, variables}); err != nil {
		return Service{}, err
	}
	return Service{
		Kind: kind, Unit: path, Log: "tail -f " + log,
		files: []file{{path, text.Bytes()}},
		start: [][]string{{"launchctl", "bootstrap", domain, path}},
		stop:  [][]string{{"launchctl", "bootout", domain + "/" + label}},
		state: []string{"launchctl", "print", domain + "/" + label},
		isUp:  func(said string) bool { return strings.Contains(said, "state = running") },
	}, nil
}

func escaped(text string) (string, error) {
	var out bytes.Buffer
	err := xml.EscapeText(&out, []byte(text))
	return out.String(), err
}
