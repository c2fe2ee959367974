package runner

import (
	"encoding/json"
	"strings"

	"github.com/ollama/ollama/llm"

	"kafila/ollama/internal/envelope"
	"kafila/ollama/pb"
)

// A completionRequest is stock's, with what our server put before it.
type completionRequest struct {
	llm.CompletionRequest
	Wishes envelope.Wishes `json:"kafila"` // envelope.WishesKey
}

// generateRequest translates stock's request; what stock leaves at its "not set" stays unset.
func generateRequest(session, prompt string, r *completionRequest) *pb.GenerateRequest {
	return &pb.GenerateRequest{
		Session:     session,
		Prompt:      prompt,
		Options:     options(r),
		Truncate:    r.Truncate,
		Shift:       r.Shift,
		Format:      answerFormat(wished(r.Wishes.Format, r.Format)),
		Strict:      r.Wishes.Strict,
		Logprobs:    r.Logprobs,
		TopLogprobs: uint32(r.TopLogprobs),
		Images:      uint32(len(r.Images)),

		Context:      r.Wishes.Context,
		TellsContext: r.Wishes.TellsContext,
		TellsHeadway: r.Wishes.TellsHeadway,
		Suffix:       r.Wishes.Suffix,
	}
}

func options(r *completionRequest) *pb.Options {
	if r.Options == nil {
		return &pb.Options{}
	}
	o := r.Options
	translated := &pb.Options{
		NumCtx:           int32Of(o.NumCtx),
		NumPredict:       int32Of(o.NumPredict),
		NumKeep:          int32Of(o.NumKeep),
		Temperature:      &o.Temperature,
		TopK:             int32Of(o.TopK),
		TopP:             &o.TopP,
		MinP:             &o.MinP,
		RepeatPenalty:    &o.RepeatPenalty,
		RepeatLastN:      int32Of(o.RepeatLastN),
		PresencePenalty:  &o.PresencePenalty,
		FrequencyPenalty: &o.FrequencyPenalty,
		Stop:             o.Stop,
	}
	translated.Guesses = r.Wishes.Guesses
	if r.Wishes.NumCtx > 0 {
		translated.NumCtx = int32Of(r.Wishes.NumCtx)
	}
	if o.Seed >= 0 { // -1 is stock's "draw one"
		seed := int64(o.Seed)
		translated.Seed = &seed
	}
	return translated
}

func int32Of(n int) *int32 {
	small := int32(n)
	return &small
}

// wished is what our server put before the completion, else what stock has.
func wished(ours, stocks json.RawMessage) json.RawMessage {
	if len(ours) > 0 {
		return ours
	}
	return stocks
}

// answerFormat gives "json", a JSON schema, or "" for what a client may have put in `format`.
func answerFormat(raw json.RawMessage) string {
	switch text := strings.TrimSpace(string(raw)); text {
	case "", "null", `""`:
		return ""
	case `"json"`:
		return "json"
	default:
		return text
	}
}
