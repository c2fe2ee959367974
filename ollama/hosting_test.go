package main

import (
	"context"
	"strings"
	"testing"

	"kafila/ollama/pb"
)

func TestHosting_printsTheCodeAndSaysWhatHappened(t *testing.T) {
	c, _, _ := controlled(t, &scripted{sessions: []*pb.Session{readySession()}})
	for name, row := range map[string]struct {
		act  func(context.Context, *control) error
		want string
	}{
		"code": {func(ctx context.Context, c *control) error { return tellCode(ctx, c, "s1", false) }, "7-ocean-velvet-lamp\n"},
		"new":  {func(ctx context.Context, c *control) error { return newCode(ctx, c, "s1", false) }, "7-new-brass-kite\n"},
		"kick": {func(ctx context.Context, c *control) error { return kick(ctx, c, "s1", "mini", false) }, "7-new-brass-kite\n"},
	} {
		if printed := printedBy(t, func() error { return row.act(t.Context(), c) }); printed != row.want {
			t.Errorf("%s: %q", name, printed)
		}
	}
}

func TestHosting_asJSON_printsTheSessionAlone(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	printed := printedBy(t, func() error { return newCode(t.Context(), c, "s1", true) })
	if !strings.HasPrefix(printed, "{") || strings.Count(printed, "\n") != 1 || !strings.Contains(printed, "7-new-brass-kite") {
		t.Errorf("%s", printed)
	}
}

func TestKick_whenNobodyHasThatName_fails(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	for member, want := range map[string]string{"ghost": `"ghost" is not a member of this session`, "": "session status"} {
		if err := kick(t.Context(), c, "s1", member, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", member, err)
		}
	}
}

func TestTellCode_whenThisMachineKnowsNone_namesTheHost(t *testing.T) {
	joined := readySession()
	joined.Code, joined.Host = "", "desktop"
	c, _, _ := controlled(t, &scripted{sessions: []*pb.Session{joined}})
	if err := tellCode(t.Context(), c, "s1", false); err == nil || !strings.Contains(err.Error(), "desktop") {
		t.Errorf("%v", err)
	}
}

func TestLock_isOneRouteForBoth(t *testing.T) {
	c, _, _ := controlled(t, &scripted{})
	for locked, want := range map[bool]string{true: "locked", false: "open"} {
		var session pb.Session
		err := c.post(t.Context(), "lock", &pb.LockRequest{Session: "s1", Locked: locked}, &session)
		if err != nil || session.Joining != want {
			t.Errorf("%t: %v, %v", locked, &session, err)
		}
	}
}

func TestJoiningText_whenNobodyCanJoin_saysWhatChangesThat(t *testing.T) {
	for joining, want := range map[string]string{
		"open": "open", "": "", "locked": "ollama session unlock", "paused": "ollama session code --new",
	} {
		if got := joiningText(joining); !strings.Contains(got, want) {
			t.Errorf("%q: %s", joining, got)
		}
	}
}
