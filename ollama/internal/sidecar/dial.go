package sidecar

import (
	"fmt"
	"net/url"
	"os"
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

// socketFolder makes a folder with mode 0700 where sockets belong.
func socketFolder() (string, error) {
	const room = 104 - len("/kafila-1234567890/sidecar.sock") // a socket's path: 104 bytes on macOS, 108 on Linux
	var failed error
	for _, parent := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if parent == "" || len(parent) > room {
			continue
		}
		folder, err := os.MkdirTemp(parent, "kafila-")
		if err == nil {
			return folder, nil
		}
		failed = err
	}
	return "", fmt.Errorf("no folder for the sidecar's socket can be made, so this server has no sessions: "+
		"make /tmp writable, or name a folder with a short path in TMPDIR (%w)", failed)
}
