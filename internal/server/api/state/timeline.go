package state

import (
	"context"
	"encoding/json"
	"net/http"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/stacks/rawjson"
	"workflowagent/internal/server/store"
)

// timelinePreviews is the maximum number of previews in a timeline.
const timelinePreviews = 100

// timeline responds with an update and the previews that were started from the version before it,
// newest first. The previews of the update's commit are the ones that led to the update.
func (h *historyRoutes) timeline(w http.ResponseWriter, r *http.Request, st store.Stack) error {
	e, err := h.ofVersion(r, st)
	if err != nil {
		return err
	}
	update, err := h.infoToHold(r.Context(), st, e)
	if err != nil {
		return err
	}
	commit := commitOf(update)
	before := e.Version - 1
	led, others := []UpdateInfoBody{}, []UpdateInfoBody{}
	f := store.UpdateFilter{Previews: true, Version: &before, Limit: timelinePreviews}
	err = h.stacks.History(r.Context(), st, f, func(e stacks.Entry) error {
		info, err := h.infoToHold(r.Context(), st, e)
		if commit != "" && commitOf(info) == commit {
			led = append(led, info)
		} else {
			others = append(others, info)
		}
		return err
	})
	return web.Answer(w, r, map[string]any{"update": update, "collatedUpdateEvents": led, "previews": others}, err)
}

// commitOf returns the commit at which an update ran, or "".
func commitOf(u UpdateInfoBody) (commit string) {
	raw := rawjson.Member(u.Info.Environment, "git.head")
	if raw == nil || json.Unmarshal(raw, &commit) != nil {
		return ""
	}
	return commit
}

// infoToHold returns the description of an update, and charges the memory of the description.
func (h *historyRoutes) infoToHold(ctx context.Context, st store.Stack, e stacks.Entry) (UpdateInfoBody, error) {
	share, reading := budget.Of(ctx), ProgramMemory(e.Update)
	if err := share.Take(ctx, reading); err != nil {
		return UpdateInfoBody{}, err
	}
	info, err := UpdateInfoOf(ctx, h.stacks, st, e)
	if err != nil {
		return info, err
	}
	share.Give(reading)
	return info, share.Take(ctx, int64(len(info.Info.Message)+len(info.Info.Environment)+len(info.Info.Config)))
}
