package view

import "time"

func absolute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func machine(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var statusWords = map[string]string{
	"not-started": "queued", "accepted": "claimed",
	"in-progress": "running", "in progress": "running", "updating": "running", "pending": "queued",
	"canceled": "cancelled", "drift": "drift found",
}

// StatusWord returns the word that the console uses for a status of the API.
func StatusWord(status string) string {
	if word, ok := statusWords[status]; ok {
		return word
	}
	return status
}

// Options returns the values of a filter as options, after one that selects all.
func Options[T ~string](all string, values []T) []Option {
	out := []Option{{Text: all}}
	for _, v := range values {
		out = append(out, Option{Value: string(v), Text: StatusWord(string(v))})
	}
	return out
}
