package triggers

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/words"
)

// Words says when a cron expression is due, in UTC. It returns "" for an expression that takes more than a few words.
func Words(expression string) string {
	f := strings.Fields(expression)
	if len(f) != 5 {
		return ""
	}
	at := clockWords(f[0], f[1])
	day := dayWords(f[2], f[3], f[4])
	switch {
	case at == "" || day == "":
		return ""
	case strings.HasPrefix(at, "at "):
		return day + " " + at
	case day == "every day":
		return at
	default:
		return at + " " + day
	}
}

// clockWords returns the times of a day in words: those that begin with "at" are single times.
func clockWords(minute, hour string) string {
	if n, ok := step(minute, 60); ok && hour == "*" {
		if n == 1 {
			return "every minute"
		}
		return fmt.Sprintf("every %d minutes", n)
	}
	m, ok := number(minute, 59)
	if !ok {
		return ""
	}
	if n, ok := step(hour, 24); ok {
		if n == 1 {
			return fmt.Sprintf("every hour at :%02d", m)
		}
		return fmt.Sprintf("every %d hours at :%02d", n, m)
	}
	var times []string
	for part := range strings.SplitSeq(hour, ",") {
		h, ok := number(part, 23)
		if !ok || len(times) == maxTimes {
			return ""
		}
		times = append(times, fmt.Sprintf("%02d:%02d", h, m))
	}
	return "at " + words.And(times)
}

// maxTimes is the number of times and days that words list.
const maxTimes = 4

// dayWords returns days in words.
func dayWords(day, month, weekday string) string {
	switch {
	case month != "*":
		return ""
	case day == "*" && weekday == "*":
		return "every day"
	case weekday == "*":
		d, ok := number(day, 31)
		if !ok || d == 0 {
			return ""
		}
		return "on day " + strconv.Itoa(d) + " of each month"
	case day != "*":
		return ""
	}
	switch strings.ToUpper(weekday) {
	case "1-5", "MON-FRI":
		return "on weekdays"
	case "6,0", "0,6", "6,7", "6-7", "SAT,SUN", "SUN,SAT":
		return "on weekends"
	}
	var days []string
	for part := range strings.SplitSeq(weekday, ",") {
		name, ok := weekdayName(part)
		if !ok || len(days) == maxTimes {
			return ""
		}
		days = append(days, name)
	}
	return "on " + words.And(days)
}

func weekdayName(text string) (string, bool) {
	if n, ok := number(text, 7); ok {
		return time.Weekday(n % 7).String(), true
	}
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(text, d.String()[:3]) {
			return d.String(), true
		}
	}
	return "", false
}

// step returns n for "*/n", and 1 for "*".
// step returns the time between two runs, in units of which all has a number. Other steps are of different lengths.
func step(text string, all int) (int, bool) {
	if text == "*" {
		return 1, true
	}
	rest, ok := strings.CutPrefix(text, "*/")
	if !ok {
		return 0, false
	}
	n, ok := number(rest, all-1)
	return n, ok && n > 0 && all%n == 0
}

func number(text string, most int) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= most && text[0] != '+' && text[0] != '-'
}
