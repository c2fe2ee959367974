package sessionapi

import (
	"testing"

	"kafila/ollama/internal/fake"
)

func TestIsCalled_findsASessionByWhatPeopleSay(t *testing.T) {
	session := fake.ReadySession()
	for name, want := range map[string]bool{"s1": true, "7": true, "7-ocean-velvet-lamp": true, "": false, "8": false, "org/model": false} {
		if IsCalled(session, name) != want {
			t.Errorf("%q", name)
		}
	}
	session.Code = "7-ocean-velvet-lamp@192.0.2.7:7770#abc"
	for _, name := range []string{"7", "7-ocean-velvet-lamp", session.Code} {
		if !IsCalled(session, name) {
			t.Errorf("%q, of a code with an address", name)
		}
	}
	session.Code = ""
	if IsCalled(session, "") {
		t.Error("an empty name matched a session without code")
	}
}
