package sidecar

import (
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial opens a channel to a sidecar's socket; nothing is connected before the first call. What
// comes through it is harmless for a terminal.
func Dial(socket string) (*grpc.ClientConn, error) {
	retry := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 250 * time.Millisecond}
	target := url.URL{Scheme: "unix", Path: socket} // a path may hold what means something in an address, as % does
	return grpc.NewClient(target.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket that only this user can open
		grpc.WithUnaryInterceptor(cleanCall), grpc.WithStreamInterceptor(cleanStream),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: 5 * time.Second}),
	)
}
