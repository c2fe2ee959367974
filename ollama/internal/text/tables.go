package text

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table lays rows out in columns; cells are separated by tabs.
func table(w io.Writer, rows []string) {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(columns, row)
	}
	columns.Flush() // a strings.Builder takes everything
}

// blocks shows a half-open range as people count: the first and the last block, and how many they are.
func blocks(start, end uint32) string {
	switch {
	case end <= start:
		return "–"
	case end == start+1:
		return fmt.Sprintf("%d (1)", start)
	}
	return fmt.Sprintf("%d–%d (%d)", start, end-1, end-start)
}

// memoryOf shows what is used of what may be.
func memoryOf(used, usable float64) string {
	return size(used) + " of " + size(usable)
}

// known shows a time that may not be known.
func known(s *float64) string {
	if s == nil {
		return "–"
	}
	return milliseconds(*s)
}

func rate(tokensPerS *float64) string {
	if tokensPerS == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f tokens/s", *tokensPerS)
}
