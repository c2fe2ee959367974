// Package version knows which Kafila this is. It imports nothing.
package version

// Kafila is set when the program is linked (-ldflags -X), as the Makefile does it.
var Kafila = "dev"

// Protocol is what members speak among themselves: the newest version that the sidecar of this tree does.
const Protocol = "1"
