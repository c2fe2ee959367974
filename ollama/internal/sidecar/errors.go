package sidecar

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// httpStatus is the one table from the sidecar's gRPC codes to HTTP. A code that is missing here is a bug: 500.
var httpStatus = map[codes.Code]int{
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.NotFound:           http.StatusNotFound,
	codes.ResourceExhausted:  http.StatusServiceUnavailable, // as Ollama answers a full queue
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.Unimplemented:      http.StatusNotImplemented,
	codes.Canceled:           499, // as Ollama answers a client that went away
}

// Gone is said when nobody is at the other end of the socket.
const Gone = "the Kafila sidecar on this machine is not running, so its sessions can't answer: " +
	"see the log of `ollama serve`, and try again in a moment"

// TooOld is said when the sidecar does not know a call.
const TooOld = "the Kafila sidecar on this machine is older than this Ollama and can't do that: " +
	"update the Python package kafila that it runs from, and start `ollama serve` anew"

// transportFailures are the beginnings of what gRPC itself says when nobody is at the other end of the socket; an
// UNAVAILABLE that the sidecar sends speaks of other machines and passes unchanged.
var transportFailures = []string{"connection error", "error reading from server", "transport is closing", "closing transport"}

// IsGone is true of an error that only says that nobody is at the other end of the socket.
func IsGone(err error) bool {
	st, ok := status.FromError(err)
	return ok && st.Code() == codes.Unavailable && slices.ContainsFunc(transportFailures, func(beginning string) bool {
		return strings.HasPrefix(st.Message(), beginning)
	})
}

// Explain gives the HTTP status and the one sentence that stand for an error of a call to the sidecar.
func Explain(err error) (int, string) {
	st, ok := status.FromError(err)
	switch {
	case errors.Is(err, context.Canceled):
		return httpStatus[codes.Canceled], "the request was cancelled"
	case errors.Is(err, context.DeadlineExceeded), st.Message() == context.DeadlineExceeded.Error():
		return http.StatusGatewayTimeout, "the Kafila sidecar did not answer in time: see the log of `ollama serve`"
	case !ok:
		return http.StatusInternalServerError, err.Error()
	}
	if st.Code() == codes.Unimplemented {
		return httpStatus[codes.Unimplemented], TooOld
	}
	if IsGone(err) {
		return http.StatusServiceUnavailable, Gone
	}
	if code, ok := httpStatus[st.Code()]; ok {
		return code, st.Message()
	}
	return http.StatusInternalServerError, st.Message()
}

// unavailable is the error of a call that can't be made because the sidecar isn't there.
func unavailable(sentence string) error {
	return status.Error(codes.Unavailable, sentence)
}
