package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// The limits of what packs may report, so that a pack that floods its output harms neither the server nor the other packs.
const (
	maxMessage    = 4 << 10  // bytes
	maxError      = 1000     // bytes
	maxPackOutput = 32 << 20 // bytes of one command
	maxPackLog    = 1 << 20  // bytes of a command's output in the log
	maxEvent      = 1 << 20  // bytes of one line with an event
)

// eventReader reads the output of `pulumi policy analyze --json`: one event per line, between lines of text.
type eventReader struct {
	pack workflow.PolicyPack
	log  *boundedLog

	line    []byte // the incomplete line
	long    bool   // it is longer than maxEvent
	found   found
	summary bool // the last event has come: the pack was evaluated
}

// Write implements [io.Writer]. It never fails.
func (r *eventReader) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if room := maxEvent - len(r.line); len(line) > room {
			line, r.long = line[:room], true
		}
		r.line = append(r.line, line...)
		if !ended {
			break
		}
		r.flush()
		rest = after
	}
	return len(data), nil
}

func (r *eventReader) close() {
	if len(r.line) > 0 {
		r.flush()
	}
}

// event is an event of the engine, as far as it matters here.
type event struct {
	Policy *struct {
		URN     string `json:"resourceUrn"`
		Message string `json:"message"`
		Policy  string `json:"policyName"`
		Tag     string `json:"policyPackVersionTag"`
		Version string `json:"policyPackVersion"`
		Level   string `json:"enforcementLevel"`
		Sev     string `json:"severity"`
	} `json:"policyEvent"`
	Remediation *struct {
		URN    string `json:"resourceUrn"`
		Policy string `json:"policyName"`
	} `json:"policyRemediationEvent"`
	Summary *json.RawMessage `json:"summaryEvent"`
}

func (r *eventReader) flush() {
	line, long := r.line, r.long
	r.line, r.long = r.line[:0], false
	var e event
	if !long && bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &e) == nil {
		r.event(e)
		return
	}
	_, _ = r.log.Write(append(line, '\n')) // never fails
}

func (r *eventReader) event(e event) {
	switch {
	case e.Policy != nil:
		v := workflow.PolicyViolation{
			PolicyName: termtext.OneLine(e.Policy.Policy, maxShown), PolicyPackName: r.pack.Name, PolicyPackVersion: r.pack.VersionTag,
			ResourceURN: termtext.OneLine(e.Policy.URN, maxMessage), EnforcementLevel: termtext.OneLine(e.Policy.Level, maxShown), Kind: "audit",
			Message: text(e.Policy.Message), Severity: termtext.OneLine(e.Policy.Sev, maxShown),
		}
		_, _ = fmt.Fprintf(r.log, "  %s %s: %s: %s\n", v.EnforcementLevel, v.PolicyName, v.ResourceURN, termtext.OneLine(v.Message, maxMessage))
		r.found.add(v)
	case e.Remediation != nil:
		_, _ = fmt.Fprintf(r.log, "  %s would change %s\n", termtext.OneLine(e.Remediation.Policy, maxShown), termtext.OneLine(e.Remediation.URN, maxMessage))
	case e.Summary != nil:
		r.summary = true
	}
}

// markup is what colors text in messages of the engine.
var markup = regexp.MustCompile(`<\{%[a-z0-9 ]*%\}>`)

// text returns a message without markup.
func text(message string) string {
	message = strings.TrimSpace(strings.ToValidUTF8(markup.ReplaceAllString(message, ""), "\uFFFD"))
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-len("…")], "") + "…"
	}
	return message
}

// boundedLog is the part of the step's log that one command may fill.
type boundedLog struct {
	out io.Writer

	mu   sync.Mutex // both outputs of a command arrive at the same time
	left int
	tail []byte // the end of the output
}

const maxTail = 4 << 10

// Write implements [io.Writer]. It never fails.
func (l *boundedLog) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, data[max(0, len(data)-maxTail):]...)
	l.tail = l.tail[max(0, len(l.tail)-maxTail):]
	switch {
	case l.left < 0:
	case len(data) > l.left:
		_, _ = l.out.Write(data[:l.left]) // writing to a step's log never fails
		_, _ = io.WriteString(l.out, "\nwarning: the rest of the pack's output is not shown, because it is too long\n")
		l.left = -1
	default:
		_, _ = l.out.Write(data)
		l.left -= len(data)
	}
	return len(data), nil
}

// last returns the last line of the output that is not empty.
func (l *boundedLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(l.tail)), "\n")
	return termtext.OneLine(strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "error: "), maxError)
}

// flood ends a command whose output is too long.
type flood struct {
	to   io.Writer
	left int
	kill context.CancelCauseFunc
}

// Write implements [io.Writer].
func (f *flood) Write(data []byte) (int, error) {
	if f.left -= len(data); f.left < 0 {
		f.kill(fmt.Errorf("its output is longer than %d MiB, so it was killed", maxPackOutput>>20))
		return len(data), nil
	}
	return f.to.Write(data)
}
