package known

import (
	"context"
	"sync"
	"time"

	"kafila/ollama/internal/sessionapi"
	"kafila/ollama/pb"
)

// A Comeback is what this server knows, since its start, of the sessions whose models an earlier run has left in the
// store. Those can't be asked before the sidecar has told which sessions there are, and each has its model anew.
type Comeback struct {
	mu      sync.Mutex
	looked  bool              // the sidecar has told
	awaited map[string]string // session id → name of its model, until that can be asked
	changed chan struct{}     // closed at the next change
}

func newComeback() *Comeback {
	return &Comeback{awaited: map[string]string{}, changed: make(chan struct{})}
}

// Expect takes these sessions, and no others, for those that come back.
func (c *Comeback) Expect(sessions []*pb.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = true
	clear(c.awaited)
	for _, session := range sessions {
		if name := session.GetVehicle().GetName(); name != "" {
			c.awaited[session.Id] = name
		}
	}
	c.tellLocked()
}

// Over is said of a session that can be asked, or is no more.
func (c *Comeback) Over(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.awaited, id)
	c.tellLocked()
}

func (c *Comeback) tellLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Await returns true when a model of that name can be asked, or is none of a session that comes back; false when that
// takes too long.
func (c *Comeback) Await(ctx context.Context, name string, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		c.mu.Lock()
		waits, changed := c.waitsLocked(name), c.changed
		c.mu.Unlock()
		if !waits {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// IsUnderWay is true as long as somebody may have to wait.
func (c *Comeback) IsUnderWay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.looked || len(c.awaited) > 0
}

func (c *Comeback) waitsLocked(name string) bool {
	if !c.looked {
		return true
	}
	for _, awaited := range c.awaited {
		if sessionapi.SameModel(awaited, name) {
			return true
		}
	}
	return false
}
