package stacks

import (
	"context"
	"encoding/json"
	"time"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks/changes"
	"workflowagent/internal/server/store"
)

// Touch is an update that changed a resource, or failed to.
type Touch struct {
	Entry
	Row changes.Row
}

// Touches are the updates that changed a resource, newest first.
type Touches struct {
	List []Touch
	// Oldest is the oldest version whose events were read, or 0.
	Oldest int64
	// Complete reports that the list begins with the creation of the resource. Otherwise older updates can have changed
	// it: their events are no longer kept, or were not read.
	Complete bool
}

// Bounds of [Service.Touches]. Reading the events of a large update takes up to a second.
const (
	maxTouches  = 20
	touchesTime = 2 * time.Second
)

// Touches returns the updates up to a version that changed a resource, from the events of the newest ones.
func (s *Service) Touches(ctx context.Context, p identity.Principal, st store.Stack, urn string, until int64) (Touches, error) {
	var out Touches
	if err := p.Check(st, identity.StateRead); err != nil {
		return out, err
	}
	began, read := time.Now(), 0
	err := s.History(ctx, st, store.UpdateFilter{Limit: keptVersions}, func(e Entry) error {
		if out.Complete || e.Version > until || e.EventsExpired || unchanged(e.Update) || read == maxTouches || read > 0 && time.Since(began) > touchesTime {
			return nil
		}
		tree, err := s.ChangesOf(ctx, e.Update)
		if err != nil {
			return err
		}
		read++
		out.Oldest = e.Version
		for _, r := range tree.Rows {
			if r.URN == urn && r.Changed() {
				out.List = append(out.List, Touch{e, r})
				out.Complete = r.State == changes.Done && (r.Op == "create" || r.Op == "import")
			}
		}
		return nil
	})
	return out, err
}

// unchanged reports whether the engine has counted no change in an update.
func unchanged(u store.Update) bool {
	var counts map[string]int64
	if json.Unmarshal([]byte(u.ResourceChanges), &counts) != nil || counts == nil || Status(u.Status) != Succeeded {
		return false
	}
	for op, n := range counts {
		if op != "same" && n > 0 {
			return false
		}
	}
	return true
}
