package qr

import (
	"strings"
	"testing"
)

func TestLines_ofACode_areAsWideAsTheyAreHigh(t *testing.T) {
	drawn := strings.Split(strings.TrimSuffix(Lines("7-ocean-velvet-lamp"), "\n"), "\n")
	for _, line := range drawn {
		if width := len([]rune(line)); width != len([]rune(drawn[0])) || width > 2*len(drawn) || width < 2*len(drawn)-1 {
			t.Errorf("a line has %d characters, and there are %d lines", width, len(drawn))
		}
	}
}

func TestLines_ofWhatIsTooLong_areNone(t *testing.T) {
	if drawn := Lines(strings.Repeat("long ", 1000)); drawn != "" {
		t.Errorf("drew %d characters", len(drawn))
	}
}

func TestSVG_hasTheModulesOfTheThreeCorners(t *testing.T) {
	drawn, err := SVG("7-ocean-velvet-lamp")
	if err != nil {
		t.Fatal(err)
	}
	for _, corner := range []string{"M4 4h1", "M28 4h1", "M4 28h1"} { // a code of 25 modules
		if !strings.Contains(drawn, corner) {
			t.Errorf("no black module at %s", corner)
		}
	}
}

func TestSVG_ofWhatIsTooLong_fails(t *testing.T) {
	if _, err := SVG(strings.Repeat("long ", 1000)); err == nil {
		t.Error("no error")
	}
}
