package text

import "strings"

// hasLineWith is true if one line of the text has all the words, in this order.
func hasLineWith(text string, words []string) bool {
	for _, line := range strings.Split(text, "\n") {
		rest := line
		found := true
		for _, word := range words {
			_, after, ok := strings.Cut(rest, word)
			if rest = after; !ok {
				found = false
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}
