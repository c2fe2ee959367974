"""The front: accepts TCP connections, counts them by address, and passes their bytes to gRPC, TLS unopened."""
