package view

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"workflowagent/internal/server/console/assets"
)

// The marks of states. Each has its own shape, so that its color says nothing alone.
const (
	MarkRunning   = "running"
	MarkFailed    = "failed"
	MarkDrift     = "drift"
	MarkWarn      = "warn"
	MarkQueued    = "queued"
	MarkPaused    = "paused"
	MarkOK        = "ok"
	MarkNever     = "never"
	MarkCancelled = "cancelled"
	MarkSkipped   = "skipped"
	// MarkApproval is of what waits for the approval of a preview; see [Review].
	MarkApproval = "approval"
)

var markWords = map[string]string{MarkOK: "succeeded", MarkDrift: "drift found", MarkWarn: "warning", MarkNever: "never updated", MarkApproval: "waits for approval"}

// MarkWord returns the word that a mark stands for.
func MarkWord(mark string) string {
	if word, ok := markWords[mark]; ok {
		return word
	}
	return mark
}

var statusMarks = map[string]string{
	"running": MarkRunning, "claimed": MarkRunning, "busy": MarkRunning,
	"failed": MarkFailed, "lost": MarkFailed,
	"interrupted": MarkWarn,
	"drift found": MarkDrift,
	"queued":      MarkQueued,
	"paused":      MarkPaused, "draining": MarkPaused,
	"succeeded": MarkOK, "online": MarkOK, "free": MarkOK,
	"cancelled": MarkCancelled, "skipped": MarkSkipped,
}

// MarkOf returns the mark of a status. A status without one of its own is one in which nothing has happened.
func MarkOf(status string) string {
	if mark, ok := statusMarks[StatusWord(status)]; ok {
		return mark
	}
	return MarkNever
}

// icon returns the address of an icon.
func icon(name string) string { return assets.Path() + "/icons/icons.svg#" + name }

func markClass(mark string) string {
	if mark == MarkRunning {
		return "i st st-running spin"
	}
	return "i st st-" + mark
}

// noUser are names that lists show for what no user did.
var noUser = map[string]bool{"The server": true, "the server": true, "A token": true, "a token": true, "Schedule": true, "Push": true, "Pull request": true}

// Initials returns the letters that stand for a name in its picture: those of the first and the last word, or the first
// two of a single word. What no user did has none.
func Initials(name string) string {
	if noUser[name] {
		return "··"
	}
	parts := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	switch len(parts) {
	case 0:
		return "··"
	case 1:
		return strings.ToUpper(cutRunes(parts[0], 2))
	}
	return strings.ToUpper(cutRunes(parts[0], 1) + cutRunes(parts[len(parts)-1], 1))
}

// cutRunes returns the first n characters of a text.
func cutRunes(text string, n int) string {
	for at := range text {
		if n--; n < 0 {
			return text[:at]
		}
	}
	return text
}

// midTail is the number of characters at the end of a long name that are always shown.
const midTail = 8

// split returns a name in two parts, of which the second is always shown. A short name has no second part.
func split(name string) (head, tail string) {
	if utf8.RuneCountInString(name) <= midTail*3/2 {
		return name, ""
	}
	at := len(name)
	for range midTail {
		_, size := utf8.DecodeLastRuneInString(name[:at])
		at -= size
	}
	return name[:at], name[at:]
}
