// Package qr draws texts as QR codes, for terminals and for pages.
package qr

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quiet is the margin in modules around a code, ISO/IEC 18004 section 5.3.8.
const quiet = 4

// SVG draws a text in currentColor on nothing, one unit a module; it fails for what is too long for a code.
func SVG(text string) (string, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return "", err
	}
	var path strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&path, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	size := code.Size + 2*quiet
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges"><path fill="currentColor" d="%s"/></svg>`,
		size, size, &path), nil
}

// Lines draws a text for a terminal, two modules a character, light on dark as most terminals are: what is black is left
// out, so that a reader sees dark on light. It is "" for what is too long.
func Lines(text string) string {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return ""
	}
	const margin = 2 // enough for readers; the whole margin costs four lines more
	light := func(x, y int) bool { return !code.Black(x-margin, y-margin) }
	size := code.Size + 2*margin
	var lines strings.Builder
	for y := 0; y < size; y += 2 {
		for x := range size {
			switch upper, lower := light(x, y), y+1 < size && light(x, y+1); {
			case upper && lower:
				lines.WriteString("█")
			case upper:
				lines.WriteString("▀")
			case lower:
				lines.WriteString("▄")
			default:
				lines.WriteString(" ")
			}
		}
		lines.WriteString("\n")
	}
	return lines.String()
}
