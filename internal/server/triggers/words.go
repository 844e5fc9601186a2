package triggers

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The fields of expressions that [InWords] knows.
var (
	cronNumber = regexp.MustCompile(`^\d{1,2}$`)
	cronStep   = regexp.MustCompile(`^\*/(\d{1,2})$`)
	cronDays   = regexp.MustCompile(`^[0-7](,[0-7])*$`)
	cronRange  = regexp.MustCompile(`^([0-7])-([0-7])$`)
)

// InWords says when a cron expression is due, such as "every day at 03:00 UTC". It returns "" for expressions that are not
// simple.
func InWords(expression string) string {
	f := strings.Fields(expression)
	if len(f) != len(cronFields) || f[3] != "*" || f[2] != "*" && f[4] != "*" {
		return ""
	}
	if !cronNumber.MatchString(f[0]) || !cronNumber.MatchString(f[1]) {
		return often(f)
	}
	days := "every day"
	switch {
	case cronNumber.MatchString(f[2]):
		days = "on day " + f[2] + " of each month"
	case f[2] != "*":
		return ""
	case f[4] != "*":
		if days = weekdays(f[4]); days == "" {
			return ""
		}
	}
	return fmt.Sprintf("%s at %02s:%02s UTC", days, f[1], f[0])
}

// often says when an expression is due that is due several times a day.
func often(f []string) string {
	if f[2] != "*" || f[4] != "*" {
		return ""
	}
	minutes, hours := cronStep.FindStringSubmatch(f[0]), cronStep.FindStringSubmatch(f[1])
	switch {
	case minutes != nil && f[1] == "*" && divides(minutes[1], 60):
		return "every " + minutes[1] + " minutes"
	case !cronNumber.MatchString(f[0]):
		return ""
	case f[1] == "*":
		return "every hour, at minute " + f[0]
	case hours != nil && divides(hours[1], 24):
		return "every " + hours[1] + " hours, at minute " + f[0]
	default:
		return ""
	}
}

// divides reports whether a step of more than one fits into a whole, so that all steps are equal.
func divides(step string, whole int) bool {
	n, err := strconv.Atoi(step)
	return err == nil && n > 1 && whole%n == 0
}

// weekdays names the days of a week, or returns "".
func weekdays(field string) string {
	name := func(digit string) string { return time.Weekday((digit[0] - '0') % 7).String() }
	if r := cronRange.FindStringSubmatch(field); r != nil {
		return name(r[1]) + " to " + name(r[2])
	}
	if !cronDays.MatchString(field) {
		return ""
	}
	var list []string
	for digit := range strings.SplitSeq(field, ",") {
		list = append(list, name(digit))
	}
	text := strings.Join(list, ", ")
	if n := len(list); n > 1 {
		text = strings.Join(list[:n-1], ", ") + " and " + list[n-1]
	}
	return "every " + text
}
