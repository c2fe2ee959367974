package sidecar

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExplain_eachCode_hasItsStatus(t *testing.T) {
	for code, want := range map[codes.Code]int{
		codes.InvalidArgument:    400,
		codes.FailedPrecondition: 400,
		codes.PermissionDenied:   403,
		codes.NotFound:           404,
		codes.ResourceExhausted:  503,
		codes.Unavailable:        503,
		codes.DeadlineExceeded:   504,
		codes.Internal:           500,
		codes.Unknown:            500,
	} {
		got, sentence := Explain(status.Error(code, "who, how much, what to do"))
		if got != want || sentence != "who, how much, what to do" {
			t.Errorf("%s: %d %q", code, got, sentence)
		}
	}
	if got, sentence := Explain(status.Error(codes.Unimplemented, "Method not found!")); got != 501 || sentence != TooOld {
		t.Errorf("a call that the sidecar doesn't know: %d %q", got, sentence)
	}
	if got, _ := Explain(errors.New("a bug")); got != http.StatusInternalServerError {
		t.Errorf("an unknown error: %d", got)
	}
	if got, _ := Explain(context.Canceled); got != 499 {
		t.Errorf("cancelled: %d", got)
	}
	for _, late := range []error{context.DeadlineExceeded, status.FromContextError(context.DeadlineExceeded).Err()} {
		if got, sentence := Explain(late); got != 504 || !strings.Contains(sentence, "in time") {
			t.Errorf("late: %d %q", got, sentence)
		}
	}
}
