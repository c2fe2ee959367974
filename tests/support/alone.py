"""What a sidecar is told that embeds its rendezvous, and says no word to any router or to the network."""

ALONE = {"KAFILA_RENDEZVOUS": "", "KAFILA_PORT_MAPPING": "0", "KAFILA_MDNS": "0"}
