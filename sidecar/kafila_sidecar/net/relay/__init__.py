"""This node's channels at the relay, by UDP or through the rendezvous' TLS connection."""
