// Package foreign makes text that comes from elsewhere harmless for a terminal: sentences, names and notes of members, of
// hosts, of a rendezvous, and of a server. It is applied where such text enters, once in each program. Answers of models
// pass as stock passes them. It imports nothing of ours.
package foreign

import (
	"strings"
	"unicode"
)

// Shown stands for each character that is taken away, so that people see that there was one.
const Shown = '\uFFFD'

// Line gives text as one line that a terminal only shows: what would end the line or move along it becomes a space;
// every other control character, and what can't be seen or turns the direction of writing, becomes Shown.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case breaks(r):
			return ' '
		case commands(r):
			return Shown
		}
		return r
	}, text)
}

// Lines is Line for text of several lines: those that end with "\n" stay.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(line)
	}
	return strings.Join(lines, "\n")
}

// breaks is true of what ends lines, and of tabs, in any script: U+0085, U+2028 and U+2029 too.
func breaks(r rune) bool {
	return r >= '\t' && r <= '\r' || r == '\u0085' || unicode.In(r, unicode.Zl, unicode.Zp)
}

// commands is true of control characters (Cc: C0, DEL and C1, so that no escape sequence begins) and of format
// characters (Cf: directions, joiners and spaces of no width, tags).
func commands(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf) }
