"""What this machine's sessions do, as numbers for Prometheus and spans for OpenTelemetry. It decides nothing."""
