package cli

import (
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

func TestDoctor_printsTheFindingsAsTheyAre_andIsNoFailure(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	for asJSON, want := range map[bool]string{false: "! UDP  is blocked\n", true: `"udp":"blocked"`} {
		printed := printedBy(t, asJSON, func(s screen) error { return doctor(t.Context(), c, &pb.DoctorRequest{}, s) })
		if !strings.Contains(strings.ReplaceAll(printed, `": `, `":`), want) { // protojson varies its spaces
			t.Errorf("%s", printed)
		}
	}
}

func TestDoctor_whenTheAddressIsNone_fails(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{}).Client
	err := doctor(t.Context(), c, &pb.DoctorRequest{Rendezvous: "nonsense"}, nowhere)
	if err == nil || err.Error() != "nonsense is no address" {
		t.Errorf("%v", err)
	}
}
