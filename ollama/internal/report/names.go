package report

import (
	"fmt"
	"maps"
	"slices"

	"kafila/ollama/internal/logbook"
)

// left are the fields that are taken out whole: what they hold is somebody's in any form, or stands beside them.
var left = map[string]bool{
	"code": true, "whole_code": true, "rendezvous_note": true, "addresses": true, "mapped_address": true, "folder": true, "text": true,
	"plan_json": true, "problem_json": true, "alternatives_json": true, "records_json": true, "last_trace_json": true,
}

// naming are the fields of plans, traces and messages that hold a member's name.
var naming = map[string]bool{"member": true, "from": true, "to": true, "head": true, "self": true, "host": true}

// names has what stands for each name.
type names struct {
	instead map[string]string
	members int
}

func newNames() *names { return &names{instead: map[string]string{}} }

// call has something else stand for a name from now on, unless something does. What every machine has tells nothing.
func (n *names) call(instead, name string) {
	if _, known := n.instead[name]; name != "" && name != "root" && name != "localhost" && !known {
		n.instead[name] = instead
	}
}

// member has a number stand for a member.
func (n *names) member(name string) {
	if _, known := n.instead[name]; name == "" || known {
		return
	}
	n.members++
	n.instead[name] = fmt.Sprintf("member-%d", n.members)
}

// learn finds the members that a plan or a trace names: some have left since.
func (n *names) learn(value any) {
	switch v := value.(type) {
	case []any:
		for _, one := range v {
			n.learn(one)
		}
	case map[string]any:
		_, isEntry := v["said"]                           // of the log, whose "from" is a program
		for _, key := range slices.Sorted(maps.Keys(v)) { // the same numbers in each report of a session
			one := v[key]
			if name, is := one.(string); is && naming[key] && !isEntry {
				n.member(name)
			}
			n.learn(one)
		}
	}
}

// without is a value without what is somebody's. The keys of a map may be names too.
func (n *names) without(value any) any {
	switch v := value.(type) {
	case string:
		return logbook.Scrub(v, n.instead)
	case []any:
		kept := make([]any, len(v))
		for i, one := range v {
			kept[i] = n.without(one)
		}
		return kept
	case map[string]any:
		kept := make(map[string]any, len(v))
		for key, one := range v {
			if !left[key] {
				kept[logbook.Scrub(key, n.instead)] = n.without(one)
			}
		}
		return kept
	}
	return value
}
