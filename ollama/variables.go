package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A variable of the environment, as help tells it.
type variable struct{ name, description string }

// sessionVariables matter to the command line; the first is stock's own, which `run` tells already.
var sessionVariables = []variable{
	{"OLLAMA_HOST", "IP Address for the ollama server (default 127.0.0.1:11434)"},
	{rendezvousVariable, "Where sessions meet (host:port#fingerprint); set it for the server"},
	{tokenVariable, "Token to control the sessions of a server on another machine; the same on both"},
}

// serveVariables matter to the server and its sidecar.
var serveVariables = []variable{
	{rendezvousVariable, "Where sessions meet, as kafila-rendezvous prints it (default: one within the server of the host)"},
	{commandVariable, "The sidecar's program (default: kafila-sidecar on PATH, then a Python that has it)"},
	{homeVariable, "Folder for identities, weights, measurements and traces (default ~/.kafila)"},
	{"KAFILA_NAME", "This machine's name in sessions (default: its host name)"},
	{"KAFILA_STUN", "Further STUN servers (host:port,...) to find out what this machine's network does"},
	{"KAFILA_PORT_MAPPING", "0: don't ask the router to forward ports (PCP, NAT-PMP, UPnP)"},
	{tokenVariable, "Token with which sessions can be controlled from other machines (default: from this one only)"},
	{"HF_ENDPOINT", "Model host (default: the Hugging Face Hub)"},
	{"HF_HUB_CACHE", "An existing cache of that Hub, whose files are used (default ~/.cache/huggingface/hub)"},
	{"HF_TOKEN", "Token for gated repositories; goes to the model host only"},
}

const rendezvousVariable = "KAFILA_RENDEZVOUS"

// appendVariables adds to a command's help what stock's commands tell in the same place.
func appendVariables(cmd *cobra.Command, variables []variable) {
	var told strings.Builder
	if !strings.Contains(cmd.UsageTemplate(), "Environment Variables:") {
		told.WriteString("\nEnvironment Variables:\n")
	}
	for _, v := range variables {
		fmt.Fprintf(&told, "      %-24s   %s\n", v.name, v.description)
	}
	cmd.SetUsageTemplate(cmd.UsageTemplate() + told.String())
}
