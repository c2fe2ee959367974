package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

const createHelp = `MODEL is a Hugging Face repository with safetensors, a short name that ` + "`ollama session models`" + ` lists, or a folder that
every member has at the same path.

The code comes first on standard output; what follows on standard error tells who comes, how the blocks are divided and
what the other objectives would give, and what goes on until the model answers. At a terminal nobody fetches anything before
you have chosen a plan; with --yes, or where nobody sits, it goes on by itself. Ctrl-C ends the telling, not the session.`

const createExamples = `  # wait for two more machines, then run
  ollama session create Qwen/Qwen3-8B --members 3

  # room for four conversations of 8192 tokens each, and no more than 12 GB from this machine
  ollama session create Qwen/Qwen3-8B --members 3 --context 8192 --concurrency 4 --memory 12GB

  # quantise while loading: each member packs its own blocks of a 16-bit checkpoint to 4 bits
  ollama session create Qwen/Qwen3-8B --members 3 --quantize 4

  # a small model of the same family guesses on the head; the large one checks several tokens at a time
  ollama session create Qwen/Qwen3-8B --members 3 --draft Qwen/Qwen3-0.6B

  # everybody holds a part, even if it were quicker without
  ollama session create ./models/SmolLM2 --members 3 --require all

  # start with whoever has come by then
  ollama session create Qwen/Qwen3-8B
  ollama session start`

func createCommand() *cobra.Command {
	var request pb.CreateSessionRequest
	var memory, spare string
	var yes bool
	cmd := &cobra.Command{
		Use:     "create MODEL",
		Short:   "Open a session, print its code, and wait for the members",
		Long:    createHelp,
		Example: createExamples,
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if request.MemoryBytes, err = text.ParseBytes(memory); err != nil {
				return err
			}
			if request.SpareBytes, err = spareBytes(spare); err != nil {
				return err
			}
			if request.Model, err = modelArgument(args[0]); err != nil {
				return err
			}
			if request.Draft != "" {
				if request.Draft, err = modelArgument(request.Draft); err != nil {
					return err
				}
			}
			s := screenOf(cmd)
			request.ChoosePlan = !yes && request.Members != 1 && s.canAsk()
			if cmd.Flags().Changed("members") && request.Members == 0 {
				s.say("Note: --members 0 waits for nobody in particular: `ollama session start` goes on with those who are there.")
			}
			return create(cmd.Context(), control.FromEnvironment(), &request, s)
		},
	}
	flags := cmd.Flags()
	flags.Uint32Var(&request.Members, "members", 0, "Wait for `N` members, this machine included, and take no more (default: until 'ollama session start')")
	flags.Uint32Var(&request.ContextTokens, "context", 0, "`TOKENS` of context for each sequence (default 4096, or the model's own if smaller)")
	flags.Uint32Var(&request.Concurrency, "concurrency", 0, "Room for `N` sequences at once (default 1)")
	flags.StringVar(&memory, "memory", "", "Lend at most `SIZE` of this machine's memory, such as 12GB (default: what is usable)")
	addSpare(cmd, &spare, "")
	addQuantize(cmd, &request.QuantizeBits, "")
	flags.StringVar(&request.Strategy, "strategy", "", "Divide the blocks by `STRATEGY`: kafila, memory, uniform (default kafila)")
	flags.StringVar(&request.Objective, "objective", "", "Make the plan best at `OBJECTIVE`: paper, latency, throughput (default: latency for one sequence, else throughput)")
	flags.StringSliceVar(&request.Require, "require", nil, "Members that must hold a part, by `NAMES`; 'all' for everybody")
	flags.StringSliceVar(&request.Exclude, "exclude", nil, "Members that must not hold a part, by `NAMES`")
	flags.StringVar(&request.Replanning, "replan", "", "What to do with a better plan: `WHEN` is auto, ask, never (default auto: take it when it gains enough)")
	flags.BoolVar(&request.NoGuesses, "no-guesses", false, "Let one token go round at a time: without it, tokens that the text foretells go with it and are checked on the way")
	flags.StringVar(&request.Draft, "draft", "", "Let `MODEL` guess what comes: a much smaller one of the same family, which the head has beside its part")
	flags.StringVar(&request.Rendezvous, "rendezvous", "", "Meet at the rendezvous at `ADDRESS` (default $KAFILA_RENDEZVOUS, else one within this server)")
	flags.BoolVar(&yes, "yes", false, "Fetch by the plan without asking about it first")
	flags.StringVar(&request.Name, "name", "", "This machine's `NAME` in the session (default: its host name)")
	addJSON(cmd)
	return cmd
}

// addQuantize adds the flag for packing a 16-bit checkpoint while it is loaded.
func addQuantize(cmd *cobra.Command, bits *uint32, prefix string) {
	cmd.Flags().Uint32Var(bits, "quantize", 0, prefix+"Quantise a 16-bit checkpoint to `BITS` (4 or 8) while loading: less memory, the same download (default: as it is)")
}

// modelArgument leaves a repository's id as it is and makes a folder's path absolute, since the server has its own
// working directory.
func modelArgument(model string) (string, error) {
	if strings.HasPrefix(model, "~/") {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		model = filepath.Join(home, model[2:])
	}
	_, err := os.Stat(filepath.Join(model, "config.json"))
	if err == nil {
		return filepath.Abs(model)
	}
	if filepath.IsAbs(model) || strings.HasPrefix(model, ".") {
		return "", fmt.Errorf("%s is no model folder: it has no config.json", model)
	}
	return model, nil
}

// displayWithPlan shows, beside how the session comes about, how it is divided as soon as that is planned; with asks it
// lets the person choose.
func (s screen) displayWithPlan(ctx context.Context, c *control.Client, asks bool) display {
	if s.asJSON {
		return s.display()
	}
	if asks {
		asking := newChooser(s, c)
		return &planned{
			display: s.display(),
			tell:    func(now *pb.Session) { asking.tell(ctx, now.Id) },
			ask:     func(now *pb.Session) { asking.ask(ctx, now.Id) },
		}
	}
	return &planned{display: s.display(), tell: func(now *pb.Session) { s.tellDivision(ctx, c, now.Id) }}
}

// tellDivision tells how a session is divided, and returns what it told; where that can't be told, nil, and the session
// goes on all the same.
func (s screen) tellDivision(ctx context.Context, c *control.Client, id string) *pb.PlanReply {
	var reply pb.PlanReply
	err := c.Post(ctx, "plan", &pb.PlanRequest{Session: id}, &reply)
	if err == nil {
		var division string
		if division, err = text.Division(&reply, widthOf(s.aside)); err == nil {
			fmt.Fprint(s.aside, "\n"+division+"\n")
			return &reply
		}
	}
	slog.Debug("division_not_told", "error", err)
	return nil
}

func create(ctx context.Context, c *control.Client, request *pb.CreateSessionRequest, s screen) error {
	var session pb.Session
	if err := c.Post(ctx, "create", request, &session); err != nil {
		return err
	}
	if !s.asJSON {
		fmt.Fprintln(s.out, session.Code)
	}
	for _, line := range text.Notices(session.Notices) {
		s.say(line)
	}
	s.say(text.Invitation(&session, widthOf(s.aside)))
	s.draw(cmp.Or(session.WholeCode, session.Code))
	formed, err := untilReady(ctx, c, session.Id, s.displayWithPlan(ctx, c, request.ChoosePlan))
	if err != nil {
		return err
	}
	s.ready(formed)
	return nil
}
