package text

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
)

// A record is what a request took, as the head of its ring writes it down; in seconds.
type record struct {
	Request           string   `json:"request"`
	Epoch             int      `json:"epoch"`
	Ended             string   `json:"ended"`
	EndedAt           float64  `json:"ended_at"` // since 1970; 0 where it was only heard of
	PromptTokens      int      `json:"prompt_tokens"`
	OutputTokens      int      `json:"output_tokens"`
	Replays           int      `json:"replays"`
	QueueS            float64  `json:"queue_s"`
	PrefillS          float64  `json:"prefill_s"`
	DecodeS           float64  `json:"decode_s"`
	TokensPerS        float64  `json:"tokens_per_s"`
	CircuitS          float64  `json:"circuit_s"`
	NetworkS          float64  `json:"network_s"`
	PredictedCircuitS *float64 `json:"predicted_circuit_s"`
	Stages            []struct {
		Member     string  `json:"member"`
		PredictedS float64 `json:"predicted_s"`
		MeasuredS  float64 `json:"measured_s"`
	} `json:"stages"`
	Hops []struct {
		From       string   `json:"from"`
		To         string   `json:"to"`
		Path       string   `json:"path"`
		PredictedS *float64 `json:"predicted_s"`
		MeasuredS  float64  `json:"measured_s"`
		Bytes      float64  `json:"bytes"`
	} `json:"hops"`
}

// lineWidth is that of a time line's bars, in columns.
const lineWidth = 40

// Trace is what one request took, for people: a time line, then stages and hops.
func Trace(written string) (string, error) {
	var r record
	if err := json.Unmarshal([]byte(written), &r); err != nil {
		return "", fmt.Errorf("the record of a request can't be read: %w", err)
	}
	var text strings.Builder
	text.WriteString(r.heading() + "\n\n")
	table(&text, r.timeLine())
	if len(r.Stages) > 0 {
		text.WriteByte('\n')
		table(&text, r.stageRows())
	}
	if len(r.Hops) > 0 {
		text.WriteByte('\n')
		table(&text, r.hopRows())
	}
	fmt.Fprintf(&text, "\nA circuit took %s, %s of it on the way; predicted were %s.\n",
		milliseconds(r.CircuitS), milliseconds(r.NetworkS), known(r.PredictedCircuitS))
	return text.String(), nil
}

func (r *record) heading() string {
	said := fmt.Sprintf("Request %s by plan %d", r.Request, r.Epoch)
	if r.EndedAt > 0 {
		said += ", " + time.UnixMilli(int64(1000*r.EndedAt)).Format(time.DateTime)
	}
	said += fmt.Sprintf(": %d tokens of prompt, %d of answer at %.1f a second, ended by %s", r.PromptTokens, r.OutputTokens, r.TokensPerS, r.Ended)
	if r.Replays > 0 {
		said += fmt.Sprintf(", taken up again %d times", r.Replays)
	}
	return said
}

// timeLine has a row for each part of a request's life, with a bar from its beginning to its end.
func (r *record) timeLine() []string {
	parts := []struct {
		name string
		s    float64
	}{{"queue", r.QueueS}, {"prompt", r.PrefillS}, {"answer", r.DecodeS}}
	whole := r.QueueS + r.PrefillS + r.DecodeS
	var rows []string
	from := 0.0
	for _, part := range parts {
		rows = append(rows, fmt.Sprintf("%s\t%.3f s\t%s", part.name, part.s, bar(from, from+part.s, whole)))
		from += part.s
	}
	return append(rows, fmt.Sprintf("together\t%.3f s\t", whole))
}

// bar is one from a time to another within a whole; what is too short to see still has a mark.
func bar(from, to, whole float64) string {
	if whole <= 0 || to <= from {
		return ""
	}
	begins := min(lineWidth-1, int(math.Floor(lineWidth*from/whole)))
	ends := min(lineWidth, max(begins+1, int(math.Round(lineWidth*to/whole))))
	return strings.Repeat(" ", begins) + strings.Repeat("█", ends-begins)
}

func (r *record) stageRows() []string {
	rows := []string{"STAGE\tPREDICTED\tMEASURED"}
	for _, stage := range r.Stages {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s", stage.Member, milliseconds(stage.PredictedS), milliseconds(stage.MeasuredS)))
	}
	return rows
}

func (r *record) hopRows() []string {
	rows := []string{"HOP\tPATH\tPREDICTED\tMEASURED\tCARRIED"}
	for _, hop := range r.Hops {
		rows = append(rows, fmt.Sprintf("%s → %s\t%s\t%s\t%s\t%s",
			hop.From, hop.To, hop.Path, known(hop.PredictedS), milliseconds(hop.MeasuredS), size(hop.Bytes)))
	}
	return rows
}
