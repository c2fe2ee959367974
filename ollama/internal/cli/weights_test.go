package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

// shelf is a sidecar whose disk holds two revisions of a model that has a short name, and one that a session uses.
func shelf() *fake.Sidecar {
	today := float64(time.Now().Unix())
	const day = 24 * 3600
	return &fake.Sidecar{
		Sessions: []*pb.Session{fake.ReadySession()},
		Named: []*pb.NamedModel{
			{Name: "qwen3:4b", Repository: "Qwen/Qwen3-4B"}, {Name: "qwen3:8b", Repository: "Qwen/Qwen3-8B", Also: []string{"qwen3", "qwen3:latest"}},
		},
		Weights: []*pb.KeptWeights{
			{Model: "Qwen/Qwen3-8B", Revision: "b968826d9c46", DiskBytes: 16e9, LastUsedS: today - 40*day},
			{Model: "Qwen/Qwen3-8B", Revision: "0123456789ab", DiskBytes: 2e9, LastUsedS: today - 3*day},
			{Model: "org/busy", Revision: "aaaaaaaaaaaa", DiskBytes: 1e9, LastUsedS: today - 50*day, InUse: true},
		},
	}
}

// keeps are the revisions on the disk, each by its first letter.
func keeps(s *fake.Sidecar) string {
	var letters string
	for _, one := range s.Weights {
		letters += one.Revision[:1]
	}
	return letters
}

func TestRemoveWeights_byWhateverNameIsRight_removesThemAndSaysHowMuchThatFrees(t *testing.T) {
	for named, row := range map[string]struct{ keeps, frees string }{
		"Qwen/Qwen3-8B":          {"a", "18 GB"},
		"qwen3:8b":               {"a", "18 GB"},
		"Qwen3:8B":               {"a", "18 GB"},
		"qwen3":                  {"a", "18 GB"},
		" Qwen3:latest":          {"a", "18 GB"},
		"qwen3@b9":               {"0a", "16 GB"},
		"qwen3:8b@b96":           {"0a", "16 GB"},
		"Qwen/Qwen3-8B@01234567": {"ba", "2 GB"},
	} {
		sidecar := shelf()
		c := servertest.Start(t, sidecar).Client
		var said bytes.Buffer
		err := removeWeights(t.Context(), c, named, true, screen{in: nowhere.in, out: &said, aside: &said})
		if err != nil || keeps(sidecar) != row.keeps || strings.Count(said.String(), row.frees) < 2 {
			t.Errorf("%s: %v, keeps %s\n%s", named, err, keeps(sidecar), said.String())
		}
	}
}

func TestRemoveWeights_whenTheyCantGo_saysWhy(t *testing.T) {
	sidecar := shelf()
	c := servertest.Start(t, sidecar).Client
	for named, want := range map[string]string{
		"org/none":  "no weights of org/none are on this machine",
		"qwen3:4b":  "no weights of Qwen/Qwen3-4B are on this machine",
		"org/busy":  "org/busy is used by a session on this machine",
		"qwen3:9b":  "no weights of qwen3:9b are on this machine",
		"qwen2":     "no weights of qwen2 are on this machine",
		"qwen3:8b@": "MODEL@REVISION",
		"@b96":      "MODEL@REVISION",
		"":          "MODEL@REVISION",
	} {
		if err := removeWeights(t.Context(), c, named, true, nowhere); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", named, err)
		}
	}
	if keeps(sidecar) != "b0a" {
		t.Errorf("only %s is left", keeps(sidecar))
	}
}

func TestRemovingWeights_withoutTerminal_wantsYes(t *testing.T) {
	nobody, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	sidecar := shelf()
	c := servertest.Start(t, sidecar).Client
	for name, act := range map[string]func(screen) error{
		"rm":    func(s screen) error { return removeWeights(t.Context(), c, "qwen3:8b@b", false, s) },
		"prune": func(s screen) error { return pruneWeights(t.Context(), c, "30d", false, s) },
	} {
		var told bytes.Buffer
		err := act(screen{in: nobody, out: &told, aside: &told})
		if err == nil || !strings.Contains(err.Error(), "--yes") || !strings.Contains(told.String(), "frees 16 GB") || keeps(sidecar) != "b0a" {
			t.Errorf("%s: %v, %s", name, err, told.String())
		}
	}
}

func TestPruneWeights_removesWhatNobodyUsedForSoLong(t *testing.T) {
	for age, row := range map[string]struct{ keeps, says string }{
		"30d": {"0a", "frees 16 GB"},
		"12h": {"a", "frees 18 GB"},
		"9w":  {"b0a", "no weights here were unused for 9w"},
	} {
		sidecar := shelf()
		c := servertest.Start(t, sidecar).Client
		var said bytes.Buffer
		err := pruneWeights(t.Context(), c, age, true, screen{in: nowhere.in, out: &said, aside: &said})
		if err != nil || keeps(sidecar) != row.keeps || !strings.Contains(said.String(), row.says) {
			t.Errorf("%s: %v, keeps %s\n%s", age, err, keeps(sidecar), said.String())
		}
	}
	if err := pruneWeights(t.Context(), servertest.Start(t, shelf()).Client, "soon", true, nowhere); err == nil || !strings.Contains(err.Error(), `"soon"`) {
		t.Errorf("%v", err)
	}
}

func TestLeave_saysWhatStaysOnTheDisk(t *testing.T) {
	for name, row := range map[string]struct {
		kept []*pb.KeptWeights
		want string
	}{
		"some": {
			[]*pb.KeptWeights{{Model: "org/model", Revision: fake.ReadySession().Revision, DiskBytes: 1.2e9}, {Model: "org/other", DiskBytes: 5e9}},
			"weights of org/model stay on this machine (1.2 GB): `ollama session weights rm org/model` removes them\n",
		},
		"none": {[]*pb.KeptWeights{{Model: "org/other", DiskBytes: 5e9}}, "free again.\n"},
	} {
		c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}, Weights: row.kept}).Client
		var said bytes.Buffer
		err := leave(t.Context(), c, fake.ReadySession(), false, screen{out: &said, aside: &said})
		if err != nil || !strings.HasPrefix(said.String(), "This machine has left the session") || !strings.HasSuffix(said.String(), row.want) {
			t.Errorf("%s: %v, %s", name, err, said.String())
		}
	}
}

func TestTellWhatStays_whenAnotherSessionHasTheModel_isSilent(t *testing.T) {
	other := fake.ReadySession()
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{other}, Weights: []*pb.KeptWeights{{Model: other.Model, Revision: other.Revision, DiskBytes: 1}}}).Client
	var said bytes.Buffer
	if err := tellWhatStays(t.Context(), c, other, screen{out: &said, aside: &said}); err != nil || said.Len() > 0 {
		t.Errorf("%v, %s", err, said.String())
	}
}
