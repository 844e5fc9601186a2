package view

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Duration returns d in words for people, such as "3 min 12 s".
func Duration(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return pair(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return pair(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return pair(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
}

func pair(major int, unit string, minor int, small string) string {
	if minor == 0 {
		return fmt.Sprintf("%d %s", major, unit)
	}
	return fmt.Sprintf("%d %s %d %s", major, unit, minor, small)
}

// Count returns a number with its noun, such as "1 agent" or "12,000 lines". The plural adds "s".
func Count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// Number returns n with separators between thousands.
func Number(n int64) string {
	text := strconv.FormatInt(n, 10)
	from := 0
	if n < 0 {
		from = 1
	}
	for i := len(text) - 3; i > from; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Size returns a number of bytes in words.
func Size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, names := float64(n)/unit, []string{"KiB", "MiB", "GiB", "TiB"}
	for value >= unit && len(names) > 1 {
		value, names = value/unit, names[1:]
	}
	return fmt.Sprintf("%.1f %s", value, names[0])
}

func absolute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func machine(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var statusWords = map[string]string{
	"not-started": "queued", "accepted": "claimed",
	"in-progress": "running", "in progress": "running", "updating": "running", "pending": "queued",
	"canceled": "cancelled",
}

// StatusWord returns the word that the console uses for a status of the API.
func StatusWord(status string) string {
	if word, ok := statusWords[status]; ok {
		return word
	}
	return status
}
