package stacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// maxSteps bounds the steps of one resource that [Service.StepsOf] returns.
const maxSteps = 20

// stepEvents are the members of events that describe a step of a resource.
var stepEvents = []string{"resourcePreEvent", "resOutputsEvent", "resOpFailedEvent"}

// steps are the descriptions of one resource's steps. A resource can go through several operations.
type steps struct {
	byOp map[string]int
	list [][]byte
}

// StepsOf returns the engine's descriptions of the steps of resources in an update by URN, in the
// order of the events, which it reads once. The newest description of a step replaces the others,
// because it contains values that were not known before, unless it lacks members.
func (s *Service) StepsOf(ctx context.Context, p identity.Principal, st store.Stack, u store.Update, urns ...string) (map[string][][]byte, error) {
	if err := p.Check(st, identity.StateRead); err != nil {
		return nil, err
	}
	if u.StackID != st.ID {
		return nil, fmt.Errorf("update %s is not one of stack %s", u.ID, st.Ref())
	}
	wanted := make(map[string]*steps, len(urns))
	for _, urn := range urns {
		wanted[urn] = &steps{byOp: map[string]int{}}
	}
	for from, end := int64(0), u.EventsExpired || len(urns) == 0; !end; {
		span, err := s.eventSpan(ctx, u.ID, from)
		if err != nil {
			return nil, fmt.Errorf("reading the changes of resources: %w", err)
		}
		kept := int64(0)
		for _, e := range span.events {
			kept += keepStep(wanted, e)
		}
		budget.Of(ctx).Give(span.bytes - min(kept, span.bytes))
		end = span.end || len(span.events) == 0
		from = span.next
	}
	out := make(map[string][][]byte, len(wanted))
	for urn, one := range wanted {
		out[urn] = one.list
	}
	return out, nil
}

// keepStep keeps an event's description of a step of a wanted resource, and returns its size.
func keepStep(wanted map[string]*steps, event []byte) int64 {
	for _, name := range stepEvents {
		meta := rawjson.Member(rawjson.Member(event, name), "metadata")
		if meta == nil {
			continue
		}
		var urn string
		if json.Unmarshal(rawjson.Member(meta, "urn"), &urn) != nil || wanted[urn] == nil {
			return 0
		}
		one, op := wanted[urn], string(rawjson.Member(meta, "op"))
		at, known := one.byOp[op]
		switch {
		case known && describesAsMuch(meta, one.list[at]):
			one.list[at] = bytes.Clone(meta) // so that the span can be freed
		case !known && len(one.list) < maxSteps:
			one.byOp[op] = len(one.list)
			one.list = append(one.list, bytes.Clone(meta))
		default:
			return 0
		}
		return int64(len(meta))
	}
	return 0
}

// describesAsMuch reports whether the description a of a step has all members that a diff requires
// and b has.
func describesAsMuch(a, b []byte) bool {
	has := func(meta []byte, name string) bool {
		value := rawjson.Member(meta, name)
		return value != nil && string(value) != "null"
	}
	return !slices.ContainsFunc([]string{"old", "new", "detailedDiff", "diffs", "keys"}, func(name string) bool {
		return has(b, name) && !has(a, name)
	})
}
