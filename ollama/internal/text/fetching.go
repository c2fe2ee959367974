package text

import (
	"fmt"
	"math"

	"kafila/ollama/pb"
)

// pace tells how quickly a member fetches and how long the rest takes at that rate, as the end of a sentence; empty
// while nothing is known.
func pace(m *pb.Member) string {
	if m.FetchRateBytesPerS <= 0 || m.FetchedBytes >= m.FetchTotalBytes {
		return ""
	}
	left := float64(m.FetchTotalBytes-m.FetchedBytes) / m.FetchRateBytesPerS
	return fmt.Sprintf(", %s/s, %s left", size(m.FetchRateBytesPerS), duration(left))
}

// duration shows seconds as people say them.
func duration(s float64) string {
	switch whole := math.Ceil(s); {
	case whole < 90:
		return fmt.Sprintf("%.0f s", whole)
	case whole < 90*60:
		return fmt.Sprintf("%.0f min", math.Ceil(s/60))
	default:
		return fmt.Sprintf("%.1f h", s/3600)
	}
}
