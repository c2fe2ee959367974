package text

import (
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

func TestSize_hasThreeDigits(t *testing.T) {
	for bytes, want := range map[float64]string{0: "0 B", 999: "999 B", 15777440256: "15.8 GB", 4e9: "4 GB", 604e6: "604 MB", 1.5e12: "1.5 TB", 2048: "2.05 kB", 999.9e6: "1 GB"} {
		if got := size(bytes); got != want {
			t.Errorf("%v: %s", bytes, got)
		}
	}
}
