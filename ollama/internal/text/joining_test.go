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

func TestJoining_whenNobodyCanJoin_saysWhatChangesThat(t *testing.T) {
	for joining, want := range map[string]string{
		"open": "open", "": "", "locked": "ollama session unlock", "paused": "ollama session code --new",
	} {
		if got := Joining(joining); !strings.Contains(got, want) {
			t.Errorf("%q: %s", joining, got)
		}
	}
}
