package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

func TestHosting_printsTheCodeAndSaysWhatHappened(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}}).Client
	for name, row := range map[string]struct {
		act  func(context.Context, *control.Client, screen) error
		want string
	}{
		"code": {func(ctx context.Context, c *control.Client, s screen) error { return tellCode(ctx, c, "s1", s) }, "7-ocean-velvet-lamp\n"},
		"new":  {func(ctx context.Context, c *control.Client, s screen) error { return newCode(ctx, c, "s1", s) }, "7-new-brass-kite\n"},
		"kick": {func(ctx context.Context, c *control.Client, s screen) error { return kick(ctx, c, "s1", "mini", s) }, "7-new-brass-kite\n"},
	} {
		if printed := printedBy(t, false, func(s screen) error { return row.act(t.Context(), c, s) }); printed != row.want {
			t.Errorf("%s: %q", name, printed)
		}
	}
}

func TestHosting_asJSON_printsTheSessionAlone(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	printed := printedBy(t, true, func(s screen) error { return newCode(t.Context(), c, "s1", s) })
	if !strings.HasPrefix(printed, "{") || strings.Count(printed, "\n") != 1 || !strings.Contains(printed, "7-new-brass-kite") {
		t.Errorf("%s", printed)
	}
}

func TestKick_whenNobodyHasThatName_fails(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	for member, want := range map[string]string{"ghost": `"ghost" is not a member of this session`, "": "session status"} {
		if err := kick(t.Context(), c, "s1", member, nowhere); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", member, err)
		}
	}
}

func TestTellCode_whenThisMachineKnowsNone_namesTheHost(t *testing.T) {
	joined := fake.ReadySession()
	joined.Code, joined.Host = "", "desktop"
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{joined}}).Client
	if err := tellCode(t.Context(), c, "s1", nowhere); err == nil || !strings.Contains(err.Error(), "desktop") {
		t.Errorf("%v", err)
	}
}

func TestLock_isOneRouteForBoth(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	for locked, want := range map[bool]string{true: "locked", false: "open"} {
		var session pb.Session
		err := c.Post(t.Context(), "lock", &pb.LockRequest{Session: "s1", Locked: &locked}, &session)
		if err != nil || session.Joining != want {
			t.Errorf("%t: %v, %v", locked, &session, err)
		}
	}
}

func TestReplan_saysWhatBecomesOfABetterPlan(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	for rule, want := range map[string]string{"ask": "told of", "auto": "by itself", "never": "not looked at", "": "takes the better plan"} {
		var said bytes.Buffer
		s := screen{out: io.Discard, aside: &said}
		err := setReplanning(t.Context(), c, "s1", rule, s)
		if rule == "" {
			said.Reset()
			err = replan(t.Context(), c, "s1", s)
		}
		if err != nil || !strings.Contains(said.String(), want) {
			t.Errorf("%q: %v, %s", rule, err, said.String())
		}
	}
}
