package exceptions

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
)

// Apply adds the exceptions that apply now to the packs that a stack must obey, before a client receives these: those
// with targets in the stack to [policies.Required.Exceptions], and those for the whole stack as the level advisory. It
// runs one statement, and none for a stack without packs.
//
// Exceptions name packs by id and stacks by id, so that neither a pack nor a stack that takes over a name takes over
// exceptions. Targets are URNs and compared as they are: a resource that was renamed, or whose stack was, has another.
func Apply(tx *store.Tx, st store.Stack, required []policies.Required) error {
	if len(required) == 0 {
		return nil
	}
	list, err := tx.ExceptionsOfStack(st.OrgID, st.ID, tx.Now())
	if err != nil {
		return err
	}
	for i := range required {
		for _, e := range list {
			if e.PackID != required[i].PackID {
				continue
			}
			if err := apply(&required[i], st, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func apply(r *policies.Required, st store.Stack, e store.PolicyException) error {
	if e.WholeStack {
		return cover(r, e)
	}
	body := struct {
		Reason string                 `json:"reason"`
		Match  []store.ExceptionEntry `json:"match"`
	}{Reason: e.Reason}
	for _, entry := range e.Entries {
		entry.Targets = slices.DeleteFunc(slices.Clone(entry.Targets), func(urn string) bool { return !inStack(urn, st) })
		if len(entry.Targets) > 0 {
			body.Match = append(body.Match, entry)
		}
	}
	if len(body.Match) == 0 {
		return nil
	}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if r.Exceptions == nil {
		r.Exceptions = map[string]json.RawMessage{}
	}
	r.Exceptions[e.Name()] = text
	return nil
}

// cover makes the policies of an exception advisory, unless the version of the pack ignores levels.
func cover(r *policies.Required, e store.PolicyException) error {
	if !r.Configurable {
		return nil
	}
	for _, entry := range e.Entries {
		for _, policy := range entry.Policies {
			stops := slices.ContainsFunc(r.Policies, func(p store.PolicyLevel) bool {
				return p.Name == policy && p.Level != policies.Advisory && p.Level != policies.Disabled
			})
			if !stops {
				continue
			}
			if _, err := r.SetLevel(policy, policies.Advisory); err != nil {
				return err
			}
			r.Covered = append(r.Covered, store.PolicyCover{Policy: policy, Exception: e.Name()})
		}
	}
	return nil
}

// Match returns the names of the exceptions in a list, for one stack, that applied to a violation at a time. Exceptions
// for the whole stack do not match: they change levels.
func Match(list []store.PolicyException, packID, policy, urn string, at time.Time) []string {
	var names []string
	for _, e := range list {
		if e.PackID == packID && !e.WholeStack && e.Active(at) && slices.ContainsFunc(e.Entries, func(entry store.ExceptionEntry) bool {
			return slices.Contains(entry.Policies, policy) && slices.Contains(entry.Targets, urn)
		}) {
			names = append(names, e.Name())
		}
	}
	return names
}

// stackOf returns the names of the project and the stack in a URN.
func stackOf(urn string) (project, stack string, ok bool) {
	rest, ok := strings.CutPrefix(urn, "urn:pulumi:")
	parts := strings.SplitN(rest, "::", 4)
	if !ok || len(parts) < 4 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[1], parts[0], true
}

func inStack(urn string, st store.Stack) bool {
	project, stack, ok := stackOf(urn)
	return ok && project == st.Project && stack == st.Name
}
