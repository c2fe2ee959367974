package server

import (
	"sync/atomic"

	"github.com/ollama/ollama/envconfig"
)

// A Scheduler has the two numbers that we put beside the user's settings for stock's scheduler.
type Scheduler struct {
	// loadSlots, while not 0, is the number of parallel requests with which stock loads a model; see store.load.
	loadSlots atomic.Uint32
	// overheadBytes is what the shards here hold and stock's scheduler can't see.
	overheadBytes atomic.Uint64
}

// Adopt has stock read our numbers with its settings, which are variables of its package. It comes before the server
// starts to read them.
func (s *Scheduler) Adopt() {
	parallel, overhead := envconfig.NumParallel, envconfig.GpuOverhead
	envconfig.NumParallel = func() uint {
		if n := s.loadSlots.Load(); n > 0 {
			return uint(n)
		}
		return parallel()
	}
	envconfig.GpuOverhead = func() uint64 { return overhead() + s.overheadBytes.Load() }
}
