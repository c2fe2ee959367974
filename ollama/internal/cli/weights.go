package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kafila/ollama/internal/control"
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

// What this machine's disk keeps of models: to see, and to remove.

func weightsCommand() *cobra.Command {
	cmd := listingCommand("weights", "List the weights on this machine's disk, or remove some",
		func(kept *pb.ListWeightsReply) string { return text.Weights(kept, time.Now()) })
	cmd.Use = "weights [rm MODEL|prune]"
	cmd.Long = "The most recently used come first. A machine fetches the weights of its own layers only, so most hold a part of a\n" +
		"model. They stay when a session ends, so that the next one need not fetch them again."
	cmd.Example = "  ollama session weights\n" +
		"  ollama session weights rm qwen3:8b\n" +
		"  ollama session weights prune --unused-for 4w"
	cmd.AddCommand(removeWeightsCommand(), pruneWeightsCommand())
	cmd.Args = onlyCommands
	return cmd
}

func removeWeightsCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rm MODEL[@REVISION]",
		Short: "Remove a model's weights from this machine's disk",
		Long: "MODEL is as in `ollama session weights` or `ollama session models`, and REVISION how one begins; without it, all\n" +
			"go. Says how much that frees, and asks. What a session uses stays.",
		Example: "  ollama session weights rm qwen3:8b\n" +
			"  ollama session weights rm Qwen/Qwen3-8B@b968826d --yes",
		Args: arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return removeWeights(cmd.Context(), control.FromEnvironment(), args[0], yes, screenOf(cmd))
		},
	}
	addYes(cmd, &yes)
	return cmd
}

func pruneWeightsCommand() *cobra.Command {
	var yes bool
	var age string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the weights that were not used for long",
		Long:  "Says which ones and how much that frees, and asks. What a session uses stays.",
		Example: "  ollama session weights prune\n" +
			"  ollama session weights prune --unused-for 12h --yes",
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pruneWeights(cmd.Context(), control.FromEnvironment(), age, yes, screenOf(cmd))
		},
	}
	cmd.Flags().StringVar(&age, "unused-for", "30d", "Remove what was not used for `TIME`, such as 12h, 30d or 4w")
	addYes(cmd, &yes)
	return cmd
}

func addYes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "Remove without asking")
	addJSON(cmd)
}

// removeWeights asks about what would go and, where nothing would, lets the sidecar say why.
func removeWeights(ctx context.Context, c *control.Client, named string, yes bool, s screen) error {
	model, revision, cut := strings.Cut(named, "@")
	if model == "" || cut && revision == "" {
		return fmt.Errorf("%q names no weights: write MODEL or MODEL@REVISION, as `ollama session weights` shows them", named)
	}
	model, err := repository(ctx, c, model)
	if err != nil {
		return err
	}
	going, err := unused(ctx, c, func(one *pb.KeptWeights) bool {
		return one.Model == model && strings.HasPrefix(one.Revision, revision)
	})
	if err != nil {
		return err
	}
	if err := agreeToRemoval(going, yes, s); err != nil {
		return err
	}
	var freed pb.FreedReply
	if err := c.Delete(ctx, "weights", &pb.RemoveWeightsRequest{Model: model, Revision: revision}, &freed); err != nil {
		return err
	}
	s.done(&freed, text.Freed(&freed))
	return nil
}

// repository is the id that a short name stands for, as `create` takes it; other names stay.
func repository(ctx context.Context, c *control.Client, name string) (string, error) {
	var all pb.ListModelsReply
	if err := c.Get(ctx, "models", nil, &all); err != nil {
		return "", err
	}
	short := strings.ToLower(strings.TrimSpace(name))
	for _, m := range all.Models {
		if m.Name == short || slices.Contains(m.Also, short) {
			return m.Repository, nil
		}
	}
	return name, nil
}

func pruneWeights(ctx context.Context, c *control.Client, age string, yes bool, s screen) error {
	unusedForS, err := text.ParseAge(age)
	if err != nil {
		return err
	}
	before := float64(time.Now().Unix()) - unusedForS
	going, err := unused(ctx, c, func(one *pb.KeptWeights) bool { return one.LastUsedS <= before })
	if err != nil {
		return err
	}
	if len(going) == 0 {
		s.done(&pb.FreedReply{}, "Nothing to remove: no weights here were unused for "+age+".")
		return nil
	}
	if err := agreeToRemoval(going, yes, s); err != nil {
		return err
	}
	var freed pb.FreedReply
	if err := c.Post(ctx, "weights/prune", &pb.PruneWeightsRequest{UnusedForS: &unusedForS}, &freed); err != nil {
		return err
	}
	s.done(&freed, text.Freed(&freed))
	return nil
}

// unused are the weights meant that no session uses.
func unused(ctx context.Context, c *control.Client, meant func(*pb.KeptWeights) bool) ([]*pb.KeptWeights, error) {
	var kept pb.ListWeightsReply
	if err := c.Get(ctx, "weights", nil, &kept); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kept.Weights, func(one *pb.KeptWeights) bool { return one.InUse || !meant(one) }), nil
}

var whetherToRemove = question{
	asks:     "Remove?",
	unasked:  "removing weights means that they have to be fetched again, and there is no terminal to ask at: add --yes to agree",
	declined: "not removed: all weights are still there",
}

func agreeToRemoval(going []*pb.KeptWeights, yes bool, s screen) error {
	if len(going) == 0 {
		return nil
	}
	fmt.Fprint(s.aside, text.Removal(going, time.Now()))
	return whetherToRemove.put(yes, s.in, s.aside)
}

// tellWhatStays says how much is on the disk of the model of a session that was left, unless another session has it.
func tellWhatStays(ctx context.Context, c *control.Client, session *pb.Session, s screen) error {
	open, err := c.Open(ctx)
	if err != nil || slices.ContainsFunc(open, func(other *pb.Session) bool { return other.Revision == session.Revision }) {
		return err
	}
	var kept pb.ListWeightsReply
	if err := c.Get(ctx, "weights", nil, &kept); err != nil {
		return err
	}
	if stays := text.Left(kept.Weights, session); stays != "" {
		s.say(stays)
	}
	return nil
}
