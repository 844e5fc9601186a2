package view

import (
	"context"
	"time"
)

type zoneKey struct{}

// InZone returns a context in which pages show times in a zone; nil means UTC.
func InZone(ctx context.Context, zone *time.Location) context.Context {
	if zone == nil {
		return ctx
	}
	return context.WithValue(ctx, zoneKey{}, zone)
}

func absolute(ctx context.Context, t time.Time) string {
	if zone, ok := ctx.Value(zoneKey{}).(*time.Location); ok {
		return t.In(zone).Format("2006-01-02 15:04:05 MST")
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

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

// FromCLI is the initiator of deployments that the pulumi CLI starts. It sends the same for the Automation API, which runs
// it, so the two cannot be told apart.
const FromCLI = "automation-api"

// Initiator returns what started a deployment, in words.
func Initiator(name string) string {
	if name == FromCLI {
		return "pulumi CLI or Automation API"
	}
	return name
}
