// Package findings reads what policy packs report in the engine events of updates. Clients send the events, so that
// all of it is what a client says: texts are bounded and without colors, and nothing is decided here.
package findings

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/termtext"
	"workflowagent/internal/words"
)

// Bounds of what is kept of an event, in bytes and numbers.
const (
	maxName       = 200
	maxURN        = 2048
	maxMessage    = 4096
	maxNames      = 1000
	maxExceptions = 20
)

// Level is the enforcement level of a policy.
type Level string

// The levels of violations. Policies with the level remediate violate as mandatory ones.
const (
	Mandatory Level = "mandatory"
	Advisory  Level = "advisory"
)

// Violation is a policy that a resource violates.
type Violation struct {
	Pack, Tag, Policy string
	Level             Level
	Severity          string // low, medium, high or critical; "" if the policy has none
	URN, Message      string
	// Exceptions are the ids of the exceptions that the client has applied to the violation.
	Exceptions []string
}

// Summary is the result of a pack for a resource, or for the whole stack if URN is "".
type Summary struct {
	Pack, Tag, URN string
	Passed, Failed []string // names of policies
}

// Finding is what one event says. At most one field is set.
type Finding struct {
	Sequence  int64
	Violation *Violation
	Summary   *Summary
	Ran       []string // the names of the packs of the whole update, from its last event; nil for other events
	Gone      string   // URN of a resource that no longer exists
}

// Of returns what an event says about policies; ok is false if it says nothing. The event must be valid JSON.
func Of(sequence int64, event []byte) (f Finding, ok bool) {
	f.Sequence = sequence
	for name, value := range rawjson.Members(event) {
		switch name {
		case "policyEvent":
			f.Violation, ok = violation(value)
		case "policyAnalyzeSummaryEvent":
			f.Summary, ok = summary(value)
			ok = ok && f.Summary.URN != ""
		case "policyAnalyzeStackSummaryEvent":
			if f.Summary, ok = summary(value); ok {
				f.Summary.URN = ""
			}
		case "summaryEvent":
			f.Ran, ok = packs(value), true
		case "resOutputsEvent":
			f.Gone = gone(value)
			ok = f.Gone != ""
		default:
			continue
		}
		break
	}
	return f, ok
}

func violation(value []byte) (*Violation, bool) {
	var e struct {
		URN        string `json:"resourceUrn"`
		Message    string `json:"message"`
		Policy     string `json:"policyName"`
		Pack       string `json:"policyPackName"`
		Version    string `json:"policyPackVersion"`
		Tag        string `json:"policyPackVersionTag"`
		Level      string `json:"enforcementLevel"`
		Severity   string `json:"severity"`
		Exceptions []struct {
			ID string `json:"id"`
		} `json:"exceptions"`
	}
	if json.Unmarshal(value, &e) != nil {
		return nil, false
	}
	v := &Violation{
		Pack: line(e.Pack), Tag: line(cmp.Or(e.Tag, e.Version)), Policy: line(e.Policy), URN: cut(e.URN, maxURN), Message: Text(e.Message),
		Level: LevelOf(e.Level), Severity: e.Severity,
	}
	if !slices.Contains(Severities, v.Severity) {
		v.Severity = ""
	}
	for _, x := range e.Exceptions[:min(len(e.Exceptions), maxExceptions)] {
		v.Exceptions = append(v.Exceptions, line(x.ID))
	}
	return v, v.Pack != "" && v.Policy != ""
}

// LevelOf returns the level of a violation: policies of the level remediate, and of levels that the server does not know,
// violate as mandatory ones.
func LevelOf(text string) Level {
	if text == string(Advisory) {
		return Advisory
	}
	return Mandatory
}

// Numbers says how many violations of mandatory and of advisory policies there are, and to how many exceptions apply.
// It returns nothing without any.
func Numbers(mandatory, advisory, excepted int64) (parts []string) {
	if mandatory > 0 {
		parts = append(parts, words.Count(mandatory, "mandatory violation"))
	}
	if advisory > 0 {
		parts = append(parts, words.Count(advisory, "advisory violation"))
	}
	if excepted > 0 {
		parts = append(parts, words.Count(excepted, "violation")+" with exceptions")
	}
	return parts
}

// Severities are the severities of policies, the worst first.
var Severities = []string{"critical", "high", "medium", "low"}

func summary(value []byte) (*Summary, bool) {
	var e struct {
		URN     string   `json:"resourceUrn"`
		Pack    string   `json:"policyPackName"`
		Version string   `json:"policyPackVersion"`
		Tag     string   `json:"policyPackVersionTag"`
		Passed  []string `json:"passed"`
		Failed  []string `json:"failed"`
	}
	if json.Unmarshal(value, &e) != nil {
		return nil, false
	}
	s := &Summary{Pack: line(e.Pack), Tag: line(cmp.Or(e.Tag, e.Version)), URN: cut(e.URN, maxURN), Passed: lines(e.Passed), Failed: lines(e.Failed)}
	return s, s.Pack != ""
}

// packs returns the names of the packs that ran. The official client writes the member with a capital letter.
func packs(value []byte) []string {
	out := []string{}
	for name, list := range rawjson.Members(value) {
		if !strings.EqualFold(name, "policyPacks") {
			continue
		}
		for pack := range rawjson.Members(list) {
			var text string
			if json.Unmarshal([]byte(`"`+pack+`"`), &text) == nil && len(out) < maxNames {
				out = append(out, line(text))
			}
		}
	}
	return out
}

func gone(value []byte) string {
	metadata := rawjson.Member(value, "metadata")
	if !bytes.Equal(rawjson.Member(metadata, "op"), []byte(`"delete"`)) {
		return ""
	}
	var urn string
	if json.Unmarshal(rawjson.Member(metadata, "urn"), &urn) != nil {
		return ""
	}
	return cut(urn, maxURN)
}

// Text returns a message of a policy without colors, control characters and white space at its ends.
func Text(message string) string {
	return cut(strings.TrimSpace(changes.Plain(strings.ToValidUTF8(message, ""))), maxMessage)
}

func line(name string) string { return termtext.OneLine(name, maxName) }

func lines(names []string) []string {
	out := make([]string, 0, min(len(names), maxNames))
	for _, name := range names[:cap(out)] {
		if name = line(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit -= len("…"); limit > 0 && !utf8.RuneStart(text[limit]); {
		limit--
	}
	return text[:limit] + "…"
}
