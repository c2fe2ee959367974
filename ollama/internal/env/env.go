// Package env names the variables of the environment that this program reads or sets. It imports nothing.
package env

// What people may set.
const (
	Rendezvous  = "KAFILA_RENDEZVOUS"
	Sidecar     = "KAFILA_SIDECAR"
	Home        = "KAFILA_HOME"
	Name        = "KAFILA_NAME"
	STUN        = "KAFILA_STUN"
	PortMapping = "KAFILA_PORT_MAPPING"
	MDNS        = "KAFILA_MDNS"
	Token       = "KAFILA_TOKEN"
	Limit       = "KAFILA_WEIGHTS_LIMIT"
	Spare       = "KAFILA_SPARE"
)

// What serve sets for the runners that it starts.
const (
	Socket    = "KAFILA_SOCKET"
	ServerPID = "KAFILA_SERVER_PID"
	Seal      = "KAFILA_SEAL"
)
