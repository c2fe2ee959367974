package text

import (
	"fmt"
	"slices"
	"strings"

	"kafila/ollama/pb"
)

// fleets are the numbers of equal machines that needs are told for, by the place in `needed_bytes`.
var fleets = []string{"ALONE", "OF 2", "OF 3", "OF 4"}

// Models is a table of the short names and what they need, for a terminal of 80 columns; notes stand below it.
func Models(models []*pb.NamedModel) string {
	rows := []string{"NAME\tWEIGHTS\t" + strings.Join(fleets, "\t") + "\tHERE"}
	var notes []string
	for _, m := range models {
		name := m.Name
		if m.Note != "" {
			if !slices.Contains(notes, m.Note) {
				notes = append(notes, m.Note)
			}
			name += fmt.Sprintf(" [%d]", slices.Index(notes, m.Note)+1)
		}
		rows = append(rows, strings.Join([]string{name, size(float64(m.WeightBytes)), needs(m), here(m)}, "\t"))
	}
	var text strings.Builder
	table(&text, rows)
	text.WriteString("\nALONE is what a machine needs that holds all of it, OF 2 what each of two equal\n" +
		"ones needs, and so on: for one conversation of 8,192 tokens.\n")
	for i, note := range notes {
		fmt.Fprintf(&text, "[%d] %s\n", i+1, note)
	}
	return text.String()
}

func needs(m *pb.NamedModel) string {
	cells := make([]string, len(fleets))
	for i := range cells {
		cells[i] = "–"
		if i < len(m.NeededBytes) {
			cells[i] = size(float64(m.NeededBytes[i]))
		}
	}
	return strings.Join(cells, "\t")
}

// here tells whether some of a model's weights are on this machine's disk.
func here(m *pb.NamedModel) string {
	if m.Here {
		return "yes"
	}
	return "–"
}
