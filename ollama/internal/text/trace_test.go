package text_test

import (
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/text"
)

const traced = ` tokens of prompt, 5 of answer at 2.0 a second, ended by stop

queue      0.500 s   █████
prompt     1.500 s        ███████████████
answer     2.000 s                       ████████████████████
together   4.000 s   

STAGE   PREDICTED   MEASURED
anna    200.0 ms    250.0 ms
mini    100.0 ms    150.0 ms

HOP           PATH     PREDICTED   MEASURED   CARRIED
anna → mini   direct   20.0 ms     50.0 ms    20.5 kB
mini → anna   relay    –           50.0 ms    400 B

A circuit took 500.0 ms, 100.0 ms of it on the way; predicted were 400.0 ms.
`

func TestTrace_isATimeLineWithStagesAndHops(t *testing.T) {
	told, err := text.Trace(fake.Record)
	if err != nil || !strings.HasPrefix(told, "Request 7 by plan 3, 2026-") || !strings.HasSuffix(told, ": 12"+traced) {
		t.Errorf("%v\n%s", err, told)
	}
}

func TestTrace_whenNothingWasMeasured_hasNoBars(t *testing.T) {
	told, err := text.Trace(`{"request":"9","ended":"cancelled"}`)
	if err != nil || strings.ContainsAny(told, "█") || !strings.Contains(told, "ended by cancelled") {
		t.Errorf("%v\n%s", err, told)
	}
}

func TestTrace_whenItIsNoRecord_saysSo(t *testing.T) {
	for _, written := range []string{"", "[]", `{"request":7}`, "{"} {
		if _, err := text.Trace(written); err == nil {
			t.Errorf("%q was read", written)
		}
	}
}
