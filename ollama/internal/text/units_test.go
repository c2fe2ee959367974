package text

import (
	"strconv"
	"strings"
	"testing"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "12GB": 12e9, "12g": 12e9, "1.5 GB": 1.5e9, "12GiB": 12 << 30, "800MB": 800e6, "64k": 64e3, "4096": 4096, "1TB": 1e12,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"much", "-1GB", "12XB", "GB", "12 12"} {
		if _, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseAge(t *testing.T) {
	for text, want := range map[string]float64{
		"12h": 43200, "30d": 30 * 86400, "4w": 28 * 86400, "1.5 D": 129600, " 0h ": 0, "999999w": 999999 * 7 * 86400,
	} {
		if got, err := ParseAge(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "soon", "30", "-1d", "1e9d", "30m", "4 weeks", "1d12h", "9999999d", "NaNd", "\x1b[2Jd"} {
		if s, err := ParseAge(text); err == nil || !strings.Contains(err.Error(), strconv.Quote(text)) {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
}

func TestSize_hasThreeDigits(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 999: "999 B", 15777440256: "15.8 GB", 4e9: "4 GB", 604e6: "604 MB", 1.5e12: "1.5 TB", 2048: "2.05 kB", 999.9e6: "1 GB"} {
		if got := size(bytes); got != want {
			t.Errorf("%v: %s", bytes, got)
		}
	}
}
