package text

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// split stands where a table may be split that is wider than the screen; else it is a tab as any.
const split = "\t\v"

const gap = 3 // spaces between columns

// table lays rows out in columns; cells are separated by tabs.
func table(w io.Writer, rows []string) { tableIn(w, rows, 0) }

// tableIn does so within width characters: a wider table becomes several, each with the first column, and what is still
// too wide goes on below in the last column. 0 is as wide as it takes.
func tableIn(w io.Writer, rows []string, width int) {
	whole := cellsOf(rows)
	if width == 0 || widthOf(whole) <= width {
		layOut(w, whole)
		return
	}
	for i, part := range partsOf(rows) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		layOut(w, wrapLast(part, width))
	}
}

// cellsOf are the cells of each row.
func cellsOf(rows []string) [][]string {
	cells := make([][]string, len(rows))
	for i, row := range rows {
		cells[i] = strings.Split(strings.ReplaceAll(row, split, "\t"), "\t")
	}
	return cells
}

// partsOf are the tables that a table is split into.
func partsOf(rows []string) [][][]string {
	var parts [][][]string
	for _, row := range rows {
		groups := strings.Split(row, split)
		first, _, _ := strings.Cut(row, "\t")
		for i, group := range groups {
			if len(parts) == i {
				parts = append(parts, nil)
			}
			cells := strings.Split(group, "\t")
			if i > 0 {
				cells = append([]string{first}, cells...)
			}
			parts[i] = append(parts[i], cells)
		}
	}
	return parts
}

func layOut(w io.Writer, cells [][]string) {
	columns := tabwriter.NewWriter(w, 0, 0, gap, ' ', 0)
	for _, row := range cells {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	columns.Flush() // a strings.Builder takes everything
}

// widths are how wide the columns are; a row with fewer cells leaves out the last ones.
func widths(cells [][]string) (widths []int) {
	for _, row := range cells {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func widthOf(cells [][]string) (width int) {
	for i, column := range widths(cells) {
		if i > 0 {
			width += gap
		}
		width += column
	}
	return width
}

const narrowest = 20 // characters of a last column, however little room there is

// wrapLast lets long cells of the last column go on in rows of their own.
func wrapLast(cells [][]string, width int) [][]string {
	columns := widths(cells)
	if len(columns) == 0 {
		return cells
	}
	last := len(columns) - 1
	room := max(width-(widthOf(cells)-columns[last]), narrowest)
	var wrapped [][]string
	for _, row := range cells {
		if len(row) <= last {
			wrapped = append(wrapped, row)
			continue
		}
		for i, line := range wrap(row[last], room) {
			next := make([]string, last+1)
			if i == 0 {
				copy(next, row)
			}
			next[last] = line
			wrapped = append(wrapped, next)
		}
	}
	return wrapped
}

// wrap breaks a text at spaces into lines of at most width characters, where its words allow.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Split(text, " ") {
		line := &lines[len(lines)-1]
		switch {
		case *line == "":
			*line = word
		case utf8.RuneCountInString(*line)+1+utf8.RuneCountInString(word) <= width:
			*line += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// sentences breaks the lines of a text where they are wider than the screen.
func sentences(text string, width int) string {
	if width == 0 {
		return text
	}
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		lines = append(lines, wrap(line, width)...)
	}
	return strings.Join(lines, "\n")
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
