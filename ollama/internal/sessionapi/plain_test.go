package sessionapi

import (
	"bytes"
	"encoding/json"
	"testing"

	"kafila/ollama/pb"
)

func TestWritePlain_isForJq(t *testing.T) {
	var written bytes.Buffer
	WritePlain(&written, &pb.PlanReply{
		PlanJson:         `{"stages":[{"start":0}],"big":18446744073709551615,"less":"<"}`,
		AlternativesJson: map[string]string{"latency": `{"a":1}`, "paper": "no JSON"},
		DownloadBytes:    map[string]uint64{"anna": 1 << 60},
	})
	var got map[string]any
	decoder := json.NewDecoder(bytes.NewReader(written.Bytes()))
	decoder.UseNumber()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	plan := got["plan"].(map[string]any)
	if plan["big"] != json.Number("18446744073709551615") || plan["less"] != "<" {
		t.Errorf("%v", plan)
	}
	if got["download_bytes"].(map[string]any)["anna"] != json.Number("1152921504606846976") {
		t.Errorf("%v", got["download_bytes"])
	}
	alternatives := got["alternatives"].(map[string]any)
	if alternatives["latency"].(map[string]any)["a"] != json.Number("1") || alternatives["paper"] != nil {
		t.Errorf("%v", alternatives)
	}
	if got["problem"] != nil || got["problem_json"] != "" {
		t.Errorf("%v", got["problem"])
	}
	if bytes.Count(written.Bytes(), []byte("\n")) != 1 {
		t.Error("more than one line")
	}
}

func TestWritePlain_mendsWhatIsDeepWithin(t *testing.T) {
	var written bytes.Buffer
	WritePlain(&written, &pb.ListSessionsReply{Sessions: []*pb.Session{{
		Members:  []*pb.Member{{UsableMemoryBytes: 16e9}},
		Vehicle:  &pb.StubModel{ParameterCount: 8e9},
		Activity: &pb.Activity{TokensPerS: 2.5},
	}, {}}})
	var got struct {
		Sessions []struct {
			Members []struct {
				UsableMemoryBytes float64 `json:"usable_memory_bytes"`
			}
			Vehicle *struct {
				ParameterCount float64 `json:"parameter_count"`
			}
			LastTrace map[string]any `json:"last_trace"`
		}
	}
	if err := json.Unmarshal(written.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Sessions[0].Members[0].UsableMemoryBytes != 16e9 || got.Sessions[0].Vehicle.ParameterCount != 8e9 || got.Sessions[1].Vehicle != nil {
		t.Errorf("%s", written.Bytes())
	}
}
