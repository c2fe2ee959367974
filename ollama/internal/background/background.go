// Package background keeps stock's menus from asking the terminal for its colours before this program has begun: a
// library that they are made with asks while it is initialised, and a terminal that does not answer costs every command
// five seconds. Only menus need to know, and ask when they are drawn.
//
// It imports syscall alone, for a reason: packages are initialised in the order of their paths, each as soon as what it
// imports is, so that this one goes before any that needs os, as that library does.
package background

import "syscall"

const variable = "TERM"

var kept, isSet = syscall.Getenv(variable)

// A terminal that calls itself dumb is asked nothing.
func init() { syscall.Setenv(variable, "dumb") }

// Restore gives the terminal its name back. It is for the beginning of main, before anything reads it.
func Restore() {
	if isSet {
		syscall.Setenv(variable, kept)
		return
	}
	syscall.Unsetenv(variable)
}
