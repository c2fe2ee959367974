package text

import (
	"math"
	"strings"
	"testing"
	"time"

	"kafila/ollama/pb"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func TestWeights_showWhatIsThereAndWhatItTakes(t *testing.T) {
	before := func(s float64) float64 { return float64(noon.Unix()) - s }
	text := Weights(&pb.ListWeightsReply{
		Weights: []*pb.KeptWeights{
			{Model: "org/one", Revision: "b968826d9c46dd6066d109eabc6255188de91218", DiskBytes: 16.4e9, Whole: true, InUse: true, LastUsedS: before(9 * day)},
			{Model: "org/two", Revision: "main", DiskBytes: 600e6, LastUsedS: before(3 * day)},
		},
		LimitBytes: 200e9, FreeDiskBytes: 42e9, Folder: "/home/me/.kafila/models",
	}, noon)
	for _, line := range [][]string{
		{"org/one", "b968826d ", "16.4 GB", "all", "in use now"},
		{"org/two", "main", "600 MB", "a part", "3 days ago"},
		{"Total", "17 GB in /home/me/.kafila/models"},
		{"Free", "42 GB"},
		{"Limit", "200 GB"},
	} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
}

func TestWeights_whenThereAreNone_tellWhereTheyWouldBe(t *testing.T) {
	text := Weights(&pb.ListWeightsReply{FreeDiskBytes: 42e9, Folder: "/models"}, noon)
	if !hasLineWith(text, []string{"0 B in /models"}) || !hasLineWith(text, []string{"none", "KAFILA_WEIGHTS_LIMIT"}) || strings.Contains(text, "MODEL") {
		t.Errorf("%s", text)
	}
}

func TestRemoval_tellsEachAndWhatAllFree(t *testing.T) {
	text := Removal([]*pb.KeptWeights{{Model: "org/one", Revision: "0123456789", DiskBytes: 1e9}, {Model: "org/two", DiskBytes: 2.5e9}}, noon)
	for _, line := range [][]string{{"org/one", "01234567 ", "1 GB"}, {"org/two", "–", "2.5 GB"}, {"frees 3.5 GB."}} {
		if !hasLineWith(text, line) {
			t.Errorf("no line with %q in\n%s", line, text)
		}
	}
}

func TestLeft_countsAllRevisionsOfTheModel(t *testing.T) {
	kept := []*pb.KeptWeights{
		{Model: "org/two", Revision: "cc", DiskBytes: 7e9}, {Model: "org/one", Revision: "aa", DiskBytes: 1e9},
		{Model: "org/one", Revision: "bb", DiskBytes: 2e8},
	}
	const want = "weights of org/one stay on this machine (1.2 GB): `ollama session weights rm org/one` removes them"
	for name, session := range map[string]*pb.Session{
		"by its repository": {Model: "org/one", Revision: "aa"}, "by a short name": {Model: "one:8b", Revision: "bb"},
	} {
		if got := Left(kept, session); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := Left(kept, &pb.Session{Model: "/a/folder", Revision: "dd"}); got != "" {
		t.Errorf("%s", got)
	}
}

func TestAgo_isInWordsWhateverTheTime(t *testing.T) {
	at := float64(noon.Unix())
	for name, row := range map[string]struct {
		s    float64
		want string
	}{
		"now":         {at, "just now"},
		"the future":  {at + day, "just now"},
		"a minute":    {at - 61, "1 minute ago"},
		"minutes":     {at - 3599, "59 minutes ago"},
		"an hour":     {at - 3601, "1 hour ago"},
		"hours":       {at - 47.5*hour, "47 hours ago"},
		"days":        {at - 3*day, "3 days ago"},
		"many days":   {at - 400*day, "400 days ago"},
		"unknown":     {0, "–"},
		"before 1970": {-5, "–"},
		"no number":   {math.NaN(), "–"},
		"infinite":    {math.Inf(1), "just now"},
	} {
		if got := ago(row.s, noon); got != row.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
