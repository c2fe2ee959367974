package logbook

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// hidden is what says who takes part, where, or with which words; the sidecar has the same in logbook.py.
var hidden = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://\S+`), "<url>"},
	{regexp.MustCompile(`(?i)\b\d{1,6}(?:-[a-z]+){3,}(?:@\S+)?`), "<code>"},
	{regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?`), "<address>"},
	{regexp.MustCompile(`(?i)\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:%\w+)?(?:\]:\d+)?`), "<address>"},
	{regexp.MustCompile(`\b[\w-]+(?:\.[\w-]+)+:\d{2,5}\b`), "<address>"},
	{regexp.MustCompile(`#[a-z2-7]{20}\b`), "#<key>"},
}

var long = regexp.MustCompile(`[A-Za-z0-9_+=]{20,}`)

// Scrub takes names, addresses, codes and keys out of a text. names has what stands for each.
func Scrub(text string, names map[string]string) string {
	for _, name := range byLength(names) {
		text = replaceWord(text, name, names[name])
	}
	for _, one := range hidden {
		text = one.pattern.ReplaceAllLiteralString(text, one.instead)
	}
	return long.ReplaceAllStringFunc(text, func(found string) string {
		if strings.ContainsAny(found, "0123456789") {
			return "<key>"
		}
		return found
	})
}

// byLength has the longest first, so that a name within another one does not spoil that.
func byLength(names map[string]string) []string {
	var all []string
	for name := range names {
		if name != "" {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, func(one, other string) int {
		return cmp.Or(cmp.Compare(len(other), len(one)), strings.Compare(one, other))
	})
	return all
}

// replaceWord replaces what stands alone, not as a part of a longer word.
func replaceWord(text, word, instead string) string {
	var done strings.Builder
	for {
		at := strings.Index(text, word)
		if at < 0 {
			return done.String() + text
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+len(word):])
		done.WriteString(text[:at])
		if inWord(before) || inWord(after) {
			_, size := utf8.DecodeRuneInString(text[at:])
			done.WriteString(text[at : at+size])
			text = text[at+size:]
			continue
		}
		done.WriteString(instead)
		text = text[at+len(word):]
	}
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r))
}
