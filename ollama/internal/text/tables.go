package text

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// split stands where a table may be split that is wider than the screen; else it is a tab as any.
const split = "\t\v"

const gap, smallGap = 3, 2 // spaces between columns; the latter where there is little room

// table lays rows out in columns; cells are separated by tabs.
func table(w io.Writer, rows []string) { tableIn(w, rows, 0) }

// tableIn does so within width characters: a wider table becomes several, each with the first column, and in what is still
// too wide long cells go on below. 0 is as wide as it takes.
func tableIn(w io.Writer, rows []string, width int) {
	whole := cellsOf(rows)
	if width == 0 || widthOf(whole, gap) <= width {
		layOut(w, whole, gap)
		return
	}
	for i, part := range partsOf(rows) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if widthOf(part, gap) <= width {
			layOut(w, part, gap)
		} else {
			layOut(w, wrapped(part, width), smallGap)
		}
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

func layOut(w io.Writer, cells [][]string, gap int) {
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

func widthOf(cells [][]string, gap int) (width int) {
	for i, column := range widths(cells) {
		if i > 0 {
			width += gap
		}
		width += column
	}
	return width
}

const narrowest = 20 // characters of a last column, before others become narrower too

// wrapped lets long cells go on in rows of their own, where their words allow.
func wrapped(cells [][]string, width int) (rows [][]string) {
	limits := narrowed(cells, width)
	for _, row := range cells {
		rows = append(rows, heaped(row, limits)...)
	}
	return rows
}

// heaped is a row as so many as its longest cell takes.
func heaped(row []string, limits []int) (rows [][]string) {
	for i, cell := range row {
		for j, line := range wrap(cell, limits[i]) {
			if j == len(rows) {
				rows = append(rows, make([]string, len(row)))
			}
			rows[j][i] = line
		}
	}
	return rows
}

// narrowed are widths with which columns fit, the last one narrowed first and then whichever is widest, none below its
// longest word, unless that is in the last column: there it stands out, and what is beside it does not.
func narrowed(cells [][]string, width int) []int {
	limits, words := widths(cells), widths(wordsOf(cells))
	last, over := len(limits)-1, -width-smallGap
	for i := range limits {
		limits[i] = min(limits[i], max(words[i], width))
		over += smallGap + limits[i]
	}
	for ; over > 0; over-- {
		switch at := widest(limits, words); {
		case limits[last] > max(words[last], narrowest), at < 0 && limits[last] > narrowest:
			limits[last]--
		case at < 0:
			return limits
		default:
			limits[at]--
		}
	}
	return limits
}

// wordsOf is, of each cell, its longest word.
func wordsOf(cells [][]string) [][]string {
	longest := make([][]string, len(cells))
	for i, row := range cells {
		for _, cell := range row {
			longest[i] = append(longest[i], slices.MaxFunc(strings.Split(cell, " "), func(one, other string) int {
				return cmp.Compare(utf8.RuneCountInString(one), utf8.RuneCountInString(other))
			}))
		}
	}
	return longest
}

// widest is which column is the widest of those that can be narrower; -1: none can.
func widest(limits, words []int) int {
	at := -1
	for i, limit := range limits {
		if limit > words[i] && (at < 0 || limit > limits[at]) {
			at = i
		}
	}
	return at
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
