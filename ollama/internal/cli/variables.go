package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/env"
)

// A variable of the environment, as help tells it.
type variable struct{ name, description string }

// sessionVariables matter to the command line; the first is stock's own, which `run` tells already.
var sessionVariables = []variable{
	{"OLLAMA_HOST", "IP Address for the ollama server (default 127.0.0.1:11434)"},
	{env.Rendezvous, "Where sessions meet (host:port#fingerprint); set it for the server"},
	{env.Token, "Token to control the sessions of a server on another machine, or of another user; the same on both"},
}

// serveVariables matter to the server and its sidecar.
var serveVariables = []variable{
	{env.Rendezvous, "Where sessions meet, as kafila-rendezvous prints it (default: one within the server of the host)"},
	{env.Sidecar, "The sidecar's program (default: kafila-sidecar beside this program or on PATH, then a Python that has it)"},
	{env.Home, "Folder for the owner's token, identities, weights, measurements and traces (default ~/.kafila)"},
	{env.Name, "This machine's name in sessions (default: its host name)"},
	{env.STUN, "Further STUN servers (host:port,...) to find out what this machine's network does"},
	{env.PortMapping, "0: don't ask the router to forward ports (PCP, NAT-PMP, UPnP)"},
	{env.MDNS, "0: don't tell or ask the local network where sessions are found (mDNS); codes carry the address then"},
	{env.Limit, "The most that weights take on this disk, as 200GB; the longest unused make room (default: no limit)"},
	{env.Spare, "The most that is fetched while idle beyond this machine's part, for the loss of others; 0: nothing (default: a tenth of the free disk)"},
	{env.Token, "Token with which others can control sessions, also from other machines (default: this user, here)"},
	{"OTEL_EXPORTER_OTLP_ENDPOINT", "Where each request is told of as OpenTelemetry spans (default: nowhere; needs kafila[trace])"},
	{"HF_ENDPOINT", "Model host (default: the Hugging Face Hub)"},
	{"HF_HUB_CACHE", "An existing cache of that Hub, whose files are used (default ~/.cache/huggingface/hub)"},
	{"HF_TOKEN", "Token for gated repositories; goes to the model host only"},
}

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
