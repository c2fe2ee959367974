package text

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var sizePattern = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?$`)

// ParseBytes reads sizes as people write them: 12GB and 12g are 12·10⁹ bytes, 12GiB is 12·2³⁰; "" is 0.
func ParseBytes(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	parts := sizePattern.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if parts == nil {
		return 0, fmt.Errorf("%q is not a size: write it as 12GB, 800MB or 12GiB", text)
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return 0, err
	}
	step := 1000.0
	if parts[3] != "" {
		step = 1024
	}
	for range strings.Index(" kmgt", parts[2]) {
		number *= step
	}
	return uint64(number), nil
}

// In seconds.
const (
	minute = 60.0
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
)

var agePattern = regexp.MustCompile(`^([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([hdw])$`)

// ParseAge reads how long ago something is as people write it, 12h, 30d or 4w, in seconds.
func ParseAge(text string) (s float64, err error) {
	parts := agePattern.FindStringSubmatch(strings.ToLower(strings.TrimSpace(text)))
	if parts == nil {
		return 0, fmt.Errorf("%q is no length of time: write it as 12h, 30d or 4w", text)
	}
	number, err := strconv.ParseFloat(parts[1], 64)
	return number * map[string]float64{"h": hour, "d": day, "w": week}[parts[2]], err
}

// size shows bytes for people, in decimal units with three digits.
func size(bytes float64) string {
	for _, unit := range []struct {
		name  string
		bytes float64
	}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}} {
		if bytes >= 0.9995*unit.bytes {
			return fmt.Sprintf("%.3g %s", bytes/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%.0f B", bytes)
}

// milliseconds shows a time for people; what isn't known is a dash.
func milliseconds(s float64) string {
	if s <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f ms", 1000*s)
}

func orDash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}
