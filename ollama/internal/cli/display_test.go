package cli

import "testing"

func TestCutWhenALineIsTooLong(t *testing.T) {
	for _, one := range []struct {
		line  string
		width int
		want  string
	}{
		{"", 5, ""}, {"äöüß", 4, "äöüß"}, {"äöüßx", 4, "äöü…"}, {"anything", 0, "anything"}, {"anything", -3, "anything"},
	} {
		if got := cut(one.line, one.width); got != one.want {
			t.Errorf("%q in %d: %q", one.line, one.width, got)
		}
	}
}
