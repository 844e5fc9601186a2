// Package mask masks deployment secrets in update events.
package mask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"workflowagent/internal/redact"
)

// Event masks secrets in an event's strings, and in names and numbers that the program chose. It
// returns an event without secrets unchanged. A masked event remains valid JSON.
func Event(set *redact.Set, raw json.RawMessage) (json.RawMessage, error) {
	// JSON strings can escape any character, so secrets can be found only after decoding.
	if set == nil || !set.Has(raw) && !bytes.Contains(raw, []byte(`\u`)) {
		return raw, nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("masking an event: %w", err)
	}
	m := eventMask{set: set}
	v = m.value(v, false)
	if !m.changed {
		return raw, nil
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("masking an event: %w", err)
	}
	return out, nil
}

// eventMask is the state of masking one event.
type eventMask struct {
	set     *redact.Set
	changed bool
}

func (m *eventMask) text(s string) string {
	masked := m.set.String(s)
	m.changed = m.changed || masked != s
	return masked
}

// value masks a value. If free is set, the program, and not the event schema, determined the names
// and numbers in the value.
func (m *eventMask) value(v any, free bool) any {
	switch v := v.(type) {
	case string:
		return m.text(v)
	case json.Number:
		if text := v.String(); free && m.text(text) != text {
			return redact.Marker
		}
		return v
	case []any:
		for i := range v {
			v[i] = m.value(v[i], free)
		}
	case map[string]any:
		return m.object(v, free)
	}
	return v
}

func (m *eventMask) object(members map[string]any, free bool) map[string]any {
	out := make(map[string]any, len(members))
	next := map[string]int{} // next suffix for each masked name
	for _, name := range slices.Sorted(maps.Keys(members)) {
		masked := name
		if free || !slices.Contains(eventNames, name) {
			masked = m.text(name)
		}
		// Masked names must remain distinct. A program can create any number of names.
		unique := masked
		for n := max(2, next[masked]); ; n++ {
			if _, taken := out[unique]; !taken {
				break
			}
			unique = fmt.Sprintf("%s (%d)", masked, n)
			next[masked] = n + 1
		}
		out[unique] = m.value(members[name], free || slices.Contains(freeMembers, name))
	}
	return out
}

// freeMembers are the event members below which the program chooses the names.
var freeMembers = []string{"config", "inputs", "outputs", "detailedDiff", "before", "after", "policyPacks"}

// eventNames are the names in the event schema that could equal a secret. Masking them would break
// the event.
var eventNames = strings.Fields(`
	sequence timestamp cancelEvent stdoutEvent diagnosticEvent preludeEvent summaryEvent resourcePreEvent resOutputsEvent
	resOpFailedEvent policyEvent policyRemediationEvent policyLoadEvent policyAnalyzeSummaryEvent policyRemediateSummaryEvent
	policyAnalyzeStackSummaryEvent startDebuggingEvent progressEvent errorEvent
	message prefix severity streamID ephemeral resourceUrn policyName policyPackName policyPackVersion policyPackVersionTag
	enforcementLevel before config maybeCorrupt durationSeconds resourceChanges policyPacks PolicyPacks isPreview
	metadata planning status detailedDiff logical provider diffKind inputDiff custom delete parent protect retainOnDelete
	inputs outputs initErrors hideDiffs completed passed failed
	create update replace refresh import create-replacement delete-replaced read-replacement read-discard discard
	discard-replaced remove-pending-replace import-replacement`)
