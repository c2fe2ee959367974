package text

import (
	"strings"
	"testing"

	"kafila/ollama/pb"
)

func TestDownloads_tellWhatIsScarceAndWhatIsThere(t *testing.T) {
	for want, offer := range map[string]*pb.Offer{
		"nothing: /models/mine has the weights": {Folder: "/models/mine"},
		"up to 3 GB to /data (9 GB free)":       {DownloadBytes: 3e9, FreeDiskBytes: 9e9, Folder: "/data"},
	} {
		if got := downloads(offer); got != want {
			t.Errorf("%s", got)
		}
	}
	if got := downloads(&pb.Offer{DownloadBytes: 3e9, FreeDiskBytes: 1e9}); !strings.Contains(got, "make room") {
		t.Errorf("%s", got)
	}
}

func TestTerms_tellTheFormOfTheWeightsAndWhatToKnow(t *testing.T) {
	text := Terms(&pb.Offer{Model: "org/model", Quantization: "4-bit, made here from BF16", Notices: []string{"its window ends", "no pictures"}})
	for _, line := range []string{"  model     org/model (4-bit, made here from BF16)\n", "\nNote: its window ends.\nNote: no pictures.\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if text := Terms(&pb.Offer{Model: "org/model"}); !strings.Contains(text, "org/model\n") || strings.Contains(text, "Note") {
		t.Errorf("%s", text)
	}
}

func TestJoining_whenNobodyCanJoin_saysWhatChangesThat(t *testing.T) {
	for joining, want := range map[string]string{
		"open": "open", "": "", "locked": "ollama session unlock", "paused": "ollama session code --new",
	} {
		if got := Joining(joining); !strings.Contains(got, want) {
			t.Errorf("%q: %s", joining, got)
		}
	}
}
