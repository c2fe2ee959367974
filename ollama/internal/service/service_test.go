package service

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// system stands for systemctl or launchctl: it remembers what it was told, and says what it is to say.
type system struct {
	told []string
	says string
	fail string // the word of a command that fails
}

func (s *system) run(_ context.Context, command ...string) (string, error) {
	line := strings.Join(command, " ")
	s.told = append(s.told, line)
	if s.fail != "" && strings.Contains(line, s.fail) {
		return "no such bus", errors.New("exit status 1")
	}
	return s.says, nil
}

// wish is for a user whose folder has in its name what means something to systemd or XML.
func wish(t *testing.T, machine bool) Wish {
	t.Helper()
	home := filepath.Join(t.TempDir(), `ada 100% <home> $HOME #1`)
	return Wish{
		Program: filepath.Join(home, "bin", "kafila"), Machine: machine, User: "ada", Home: home, UID: 1000,
		Config: filepath.Join(home, ".config"), System: filepath.Join(home, "etc"),
	}
}

var kinds = map[string]struct {
	system  string
	machine bool
	running string
}{
	"systemd, user":    {"linux", false, "active\n"},
	"systemd, machine": {"linux", true, "active\n"},
	"launchd, user":    {"darwin", false, "\tstate = running\n"},
	"launchd, machine": {"darwin", true, "\tstate = running\n"},
}

func TestService_whenInstalledAndUninstalled_leavesNothing(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			wanted := wish(t, kind.machine)
			service, err := On(kind.system, wanted, []Variable{{"KAFILA_TOKEN", `a "quoted" $word\`}})
			if err != nil {
				t.Fatal(err)
			}
			sys := &system{says: kind.running}
			if now := service.Condition(t.Context(), sys.run); now != (Condition{}) {
				t.Errorf("before: %+v", now)
			}
			if err := service.Install(t.Context(), sys.run); err != nil {
				t.Fatal(err)
			}
			for _, one := range service.files {
				if info, err := os.Stat(one.path); err != nil || info.Mode().Perm() != fileMode {
					t.Errorf("%s: %v, %v", one.path, info.Mode(), err)
				}
			}
			if now := service.Condition(t.Context(), sys.run); now != (Condition{Installed: true, Running: true}) {
				t.Errorf("installed: %+v", now)
			}
			if was, err := service.Uninstall(t.Context(), sys.run); !was || err != nil {
				t.Errorf("%v, %v", was, err)
			}
			if left := filesBelow(t, wanted.Home); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if was, err := service.Uninstall(t.Context(), sys.run); was || err != nil {
				t.Errorf("again: %v, %v", was, err)
			}
		})
	}
}

func TestService_whenInstalledAgain_stopsTheOldOneFirst(t *testing.T) {
	sys := &system{}
	service, _ := On("darwin", wish(t, false), nil)
	for range 2 {
		if err := service.Install(t.Context(), sys.run); err != nil {
			t.Fatal(err)
		}
	}
	var words []string
	for _, line := range sys.told {
		words = append(words, strings.Fields(line)[1])
	}
	if !slices.Equal(words, []string{"bootstrap", "bootout", "bootstrap"}) {
		t.Errorf("%v", words)
	}
}

func TestService_whenItCantBeStarted_saysWhyAndLeavesNothing(t *testing.T) {
	wanted := wish(t, false)
	service, _ := On("linux", wanted, nil)
	err := service.Install(t.Context(), (&system{fail: "enable"}).run)
	if err == nil || err.Error() != "`systemctl --user enable kafila.service` failed: no such bus" {
		t.Errorf("%v", err)
	}
	if left := filesBelow(t, wanted.Home); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestService_whenTheProgramMoved_isOutdated(t *testing.T) {
	wanted := wish(t, false)
	service, _ := On("linux", wanted, nil)
	if err := service.Install(t.Context(), (&system{}).run); err != nil {
		t.Fatal(err)
	}
	wanted.Program = "/opt/kafila/bin/kafila"
	moved, _ := On("linux", wanted, nil)
	if now := moved.Condition(t.Context(), (&system{says: "failed"}).run); now != (Condition{Installed: true, Outdated: true}) {
		t.Errorf("%+v", now)
	}
}

func TestService_whenItsFolderCantBeMade_saysWhich(t *testing.T) {
	wanted := wish(t, false)
	if err := os.MkdirAll(wanted.Home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wanted.Config, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	service, _ := On("linux", wanted, nil)
	if err := service.Install(t.Context(), (&system{}).run); err == nil || !strings.HasPrefix(err.Error(), service.Unit+" can't be written: ") {
		t.Errorf("%v", err)
	}
}

func TestService_onAnotherSystem_saysWhatToDo(t *testing.T) {
	if _, err := On("plan9", wish(t, false), nil); err == nil || !strings.Contains(err.Error(), "kafila serve") {
		t.Errorf("%v", err)
	}
}

func TestUnit_whenTheProgramsPathHasQuotes_saysWhatToDo(t *testing.T) {
	wanted := wish(t, false)
	wanted.Program = "/home/ada's/kafila"
	if _, err := On("linux", wanted, nil); err == nil || !strings.Contains(err.Error(), "move /home/ada's/kafila") {
		t.Errorf("%v", err)
	}
}

func TestKept_takesWhatAServerReads(t *testing.T) {
	kept, err := Kept([]string{
		"PATH=/bin", "KAFILA_SPARE=0", "OLLAMA_HOST=127.0.0.1:11500", "HF_TOKEN=x=y", "KAFILA_SEAL=secret", "no_proxy=localhost", "KAFILA_NAME=",
	})
	want := []Variable{{"HF_TOKEN", "x=y"}, {"KAFILA_SPARE", "0"}, {"OLLAMA_HOST", "127.0.0.1:11500"}, {"no_proxy", "localhost"}}
	if err != nil || !slices.Equal(kept, want) {
		t.Errorf("%v, %v", kept, err)
	}
	if _, err := Kept([]string{"KAFILA_NAME=a\nExecStart=/bin/evil"}); err == nil {
		t.Error("a value of two lines was taken")
	}
}

func TestSettings_whenValuesHaveQuotes_areWhatSystemdReadsBack(t *testing.T) {
	text := string(settingsText([]Variable{{"KAFILA_NAME", "a \"b\" `c` $d \\"}}))
	if _, line, _ := strings.Cut(text, "\n"); line != "KAFILA_NAME=\"a \\\"b\\\" \\`c\\` \\$d \\\\\"\n" {
		t.Error(line)
	}
}

func TestPlist_whenNamesHaveAngles_isXML(t *testing.T) {
	for _, machine := range []bool{false, true} {
		wanted := wish(t, machine)
		service, err := On("darwin", wanted, []Variable{{"KAFILA_NAME", "<ada> & co"}})
		if err != nil {
			t.Fatal(err)
		}
		text := string(service.files[0].text)
		said := map[string]bool{}
		for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := decoder.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, text)
			}
			if words, ok := token.(xml.CharData); ok {
				said[string(words)] = true
			}
		}
		if !said["<ada> & co"] || !said[wanted.Program] || said["UserName"] != machine {
			t.Error(text)
		}
	}
}

// plistReader reads a property list as macOS' own tools do, and tells its values.
const plistReader = "import json, plistlib, sys; json.dump(plistlib.loads(sys.stdin.buffer.read()), sys.stdout)"

func TestPlist_isWhatAReaderOfPropertyListsTakes(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here, which knows property lists")
	}
	for _, machine := range []bool{false, true} {
		wanted := wish(t, machine)
		service, err := On("darwin", wanted, []Variable{{"KAFILA_NAME", "<ada> & co"}})
		if err != nil {
			t.Fatal(err)
		}
		reading := exec.Command(python, "-c", plistReader)
		reading.Stdin = bytes.NewReader(service.files[0].text)
		said, err := reading.Output()
		var read struct {
			Label                              string
			ProgramArguments                   []string
			UserName                           string
			EnvironmentVariables               map[string]string
			RunAtLoad                          bool
			KeepAlive                          map[string]bool
			ThrottleInterval, ExitTimeOut      int
			SoftResourceLimits                 map[string]int
			StandardOutPath, StandardErrorPath string
		}
		taking := json.NewDecoder(bytes.NewReader(said))
		taking.DisallowUnknownFields()
		if err != nil || taking.Decode(&read) != nil {
			t.Fatalf("%v: %s\n%s", err, said, service.files[0].text)
		}
		file := strings.TrimSuffix(filepath.Base(service.Unit), ".plist")
		if read.Label != file || !slices.Equal(read.ProgramArguments, []string{wanted.Program, "serve"}) ||
			read.EnvironmentVariables["KAFILA_NAME"] != "<ada> & co" || !read.RunAtLoad || read.KeepAlive["SuccessfulExit"] ||
			(read.UserName == wanted.User) != machine || !filepath.IsAbs(read.StandardOutPath) || read.StandardErrorPath != read.StandardOutPath {
			t.Errorf("%+v", read)
		}
	}
}

func TestUnit_isWhatSystemdTakes(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	for _, machine := range []bool{false, true} {
		wanted := wish(t, machine)
		service, err := On("linux", wanted, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(wanted.Program), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(wanted.Program, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		unit := filepath.Join(t.TempDir(), "kafila.service")
		if err := os.WriteFile(unit, service.files[0].text, 0o644); err != nil {
			t.Fatal(err)
		}
		said, err := exec.Command(analyze, "verify", "--man=no", "--recursive-errors=no", unit).CombinedOutput()
		if err != nil || strings.Contains(string(said), "kafila") {
			t.Errorf("%v: %s\n%s", err, said, service.files[0].text)
		}
	}
}

// filesBelow are all but folders.
func filesBelow(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
