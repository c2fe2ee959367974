package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"kafila/ollama/internal/control"
	"kafila/ollama/pb"
)

const choiceAsked = "Nothing is fetched yet. Enter fetches by this plan; paper, latency or throughput\n" +
	"by the one that is best for that; q gives the session up: "

var objectives = []string{"paper", "latency", "throughput"}

// A chooser asks the person about the first plan, while the session is watched: it may be planned anew meanwhile.
type chooser struct {
	screen
	client *control.Client
	once   sync.Once
}

// ask puts the question; the first time somebody begins to wait for the answer, which counts for the plan of that time.
func (c *chooser) ask(ctx context.Context, id string) {
	fmt.Fprint(c.aside, choiceAsked)
	c.once.Do(func() { go c.listen(ctx, id) })
}

// listen ends with an answer that was understood, or with what is typed.
func (c *chooser) listen(ctx context.Context, id string) {
	typed := bufio.NewReader(c.in)
	for {
		line, err := typed.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				c.say("\n`ollama session start` goes on with this plan.")
			}
			return
		}
		if understood, err := c.answer(ctx, id, strings.ToLower(strings.TrimSpace(line))); understood {
			if err != nil {
				c.say("Error: " + err.Error())
			}
			return
		}
		fmt.Fprint(c.aside, choiceAsked)
	}
}

// answer carries out what was said; false if it was nothing that was asked for.
func (c *chooser) answer(ctx context.Context, id, said string) (understood bool, err error) {
	switch {
	case said == "" || said == "y" || said == "yes":
		said = ""
	case slices.Contains([]string{"q", "n", "no"}, said):
		return true, c.client.Post(ctx, "leave", &pb.LeaveRequest{Session: id}, &pb.LeaveSessionReply{})
	case !slices.Contains(objectives, said):
		return false, nil
	}
	return true, c.client.Post(ctx, "choose", &pb.ChoosePlanRequest{Session: id, Objective: said}, &pb.Session{})
}
