package cli

import (
	"strings"
	"testing"

	"kafila/ollama/internal/fake"
	"kafila/ollama/internal/servertest"
	"kafila/ollama/pb"
)

func TestPlanSubject_isASessionOrAModel(t *testing.T) {
	c := servertest.Start(t, &fake.Sidecar{Sessions: []*pb.Session{fake.ReadySession()}}).Client
	for name, row := range map[string]struct {
		args           []string
		session, model string
	}{
		"nothing named": {nil, "s1", ""},
		"by code":       {[]string{"7-ocean-velvet-lamp"}, "s1", ""},
		"a model":       {[]string{"org/model"}, "", "org/model"},
	} {
		var request pb.PlanRequest
		err := planSubject(t.Context(), c, row.args, &request)
		if err != nil || request.Session != row.session || request.Model != row.model {
			t.Errorf("%s: %v, %v", name, &request, err)
		}
	}
	if err := planSubject(t.Context(), c, nil, &pb.PlanRequest{QuantizeBits: 4}); err == nil || !strings.Contains(err.Error(), "--quantize") {
		t.Errorf("a session's weights were changed: %v", err)
	}
	if err := planSubject(t.Context(), c, nil, &pb.PlanRequest{ContextTokens: 8192}); err == nil || !strings.Contains(err.Error(), "--context") {
		t.Errorf("a session's context was changed: %v", err)
	}
}
