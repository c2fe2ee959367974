package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kafila/ollama/internal/logbook"
)

const said = `{"at":"2026-11-28T10:00:00Z","level":"INFO","from":"sidecar","where":"a","said":"sidecar_ready"}
{"at":"2026-11-28T10:00:01Z","level":"ERROR","from":"sidecar","where":"b","said":"call_failed","traceback":"Traceback:\n  x <y>"}
`

func TestLogs_areShownFromALevelOn_alsoAsJSON(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "sidecar.jsonl"), []byte(said), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := printedBy(t, false, func(s screen) error { return showLogs(t.Context(), folder, "info", false, s) })
	if strings.Count(shown, "\n") != 4 || !strings.Contains(shown, " INFO  sidecar sidecar_ready\n") || !strings.HasSuffix(shown, "    Traceback:\n      x <y>\n") {
		t.Errorf("%s", shown)
	}
	shown = printedBy(t, true, func(s screen) error { return showLogs(t.Context(), folder, "warn", false, s) })
	var entry logbook.Entry
	if err := json.Unmarshal([]byte(shown), &entry); err != nil || entry.Said != "call_failed" || !strings.Contains(shown, "<y>") {
		t.Errorf("%v: %s", err, shown)
	}
}

func TestLogs_whenTheLevelIsNone_sayWhichThereAre(t *testing.T) {
	cmd := logsCommand()
	cmd.SetArgs([]string{"--level", "loud"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "choose one of debug, info, warn, error") {
		t.Errorf("%v", err)
	}
}
