package service

import (
	"fmt"
	"slices"
	"strings"
)

// A Variable of the environment that a service gets.
type Variable struct{ Name, Value string }

var (
	prefixes = []string{"KAFILA_", "OLLAMA_", "HF_"}
	proxies  = []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"}
	inner    = []string{"KAFILA_SOCKET", "KAFILA_SERVER_PID", "KAFILA_SEAL"} // between a server and its runners
)

// Kept are those of an environment ("NAME=value" each) that a server reads, in order. A value of more than one line is
// refused: no service's settings can hold it.
func Kept(environment []string) ([]Variable, error) {
	var kept []Variable
	for _, one := range environment {
		name, value, _ := strings.Cut(one, "=")
		if !isKept(name) || value == "" {
			continue
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' }) {
			return nil, fmt.Errorf("%s has a value of several lines, or with control characters: no service can be given that", name)
		}
		kept = append(kept, Variable{name, value})
	}
	slices.SortFunc(kept, func(one, other Variable) int { return strings.Compare(one.Name, other.Name) })
	return kept, nil
}

func isKept(name string) bool {
	begins := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	return (begins || slices.Contains(proxies, name)) && !slices.Contains(inner, name)
}
