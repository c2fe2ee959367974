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
	"kafila/ollama/internal/text"
	"kafila/ollama/pb"
)

const (
	choiceAsked = "Nothing is fetched yet. Enter fetches by this plan; paper, latency or throughput\n" +
		"by the one that is best for that; q gives the session up: "
	notShown = "The plan can't be shown here: `ollama session plan` shows it, and `ollama session start`\ngoes on with it."
)

var objectives = []string{"paper", "latency", "throughput"}

// A chooser asks the person about the first plan, while the session is watched. It may be planned anew meanwhile: what is
// typed is about what was shown last, and another plan is shown and asked about again.
type chooser struct {
	screen
	client *control.Client
	typed  *bufio.Reader // by one listener at a time

	mu        sync.Mutex
	shown     map[string][]*pb.Stage // how the blocks are divided, by what a plan is best for; "": the plan as it is
	questions int
	listening bool
}

func newChooser(s screen, c *control.Client) *chooser {
	return &chooser{screen: s, client: c, typed: bufio.NewReader(s.in)}
}

// tell shows the plan and what the other objectives would give.
func (c *chooser) tell(ctx context.Context, id string) {
	told := c.tellDivision(ctx, c.client, id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = text.Divisions(told)
}

// ask puts the question, and has somebody wait for the answer.
func (c *chooser) ask(ctx context.Context, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown == nil {
		c.say(notShown)
		return
	}
	fmt.Fprint(c.aside, choiceAsked)
	c.questions++
	if !c.listening {
		c.listening = true
		go c.listen(ctx, id)
	}
}

// listen ends with an answer that was taken and led to no further question, or with what is typed.
func (c *chooser) listen(ctx context.Context, id string) {
	for {
		line, err := c.typed.ReadString('\n')
		answered, shown := c.last()
		if err != nil {
			if errors.Is(err, io.EOF) {
				c.say("\n`ollama session start` goes on with this plan.")
			}
			return
		}
		understood, err := c.answer(ctx, id, strings.ToLower(strings.TrimSpace(line)), shown)
		switch {
		case err != nil:
			c.say("Error: " + err.Error())
		case !understood:
			fmt.Fprint(c.aside, choiceAsked)
		case c.ends(answered):
			return
		}
	}
}

// last is which question was put last, and what was shown with it.
func (c *chooser) last() (question int, shown map[string][]*pb.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.questions, c.shown
}

// ends the listening, unless another question was put since.
func (c *chooser) ends(answered int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listening = c.questions != answered
	return !c.listening
}

// answer carries out what was said; false if it was nothing that was asked for.
func (c *chooser) answer(ctx context.Context, id, said string, shown map[string][]*pb.Stage) (understood bool, err error) {
	switch {
	case said == "y" || said == "yes":
		said = ""
	case slices.Contains([]string{"q", "n", "no"}, said):
		return true, c.client.Post(ctx, "leave", &pb.LeaveRequest{Session: id}, &pb.LeaveSessionReply{})
	}
	division, isShown := shown[said]
	if !isShown {
		if slices.Contains(objectives, said) {
			c.say("There is no plan that is best for " + said + ".")
		}
		return false, nil
	}
	return true, c.client.Post(ctx, "choose", &pb.ChoosePlanRequest{Session: id, Objective: said, Shown: division}, &pb.Session{})
}
