package stacks

import (
	"encoding/json"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/webhooks"
)

// record records for webhooks that a caller created or deleted a stack.
func record(tx *store.Tx, p identity.Principal, st store.Stack, name webhooks.Name, action string) error {
	return webhooks.Record(tx, webhooks.Event{
		Name: name, OrgID: st.OrgID, StackID: st.ID, DeploymentID: p.DeploymentID,
		Describe: func(string) (webhooks.Description, error) {
			return webhooks.Description{
				Project: st.Project, Stack: st.Name, UserID: p.User.ID, Fields: map[string]any{"action": action},
			}, nil
		},
	})
}

// recordEnd records for webhooks that an update has ended. The events know only success and
// failure, so a cancelled update counts as failed; the payload tells the difference.
func (s *Service) recordEnd(tx *store.Tx, st store.Stack, u store.Update) error {
	kind := u.Kind
	if u.Preview {
		kind = string(KindPreview)
	}
	return webhooks.Record(tx, webhooks.Event{
		Name: webhooks.UpdateEnded(kind, u.Status == string(Succeeded)), OrgID: st.OrgID, StackID: st.ID, DeploymentID: u.DeploymentID,
		Describe: func(org string) (webhooks.Description, error) {
			changes := json.RawMessage("{}")
			if u.ResourceChanges != "" {
				changes = json.RawMessage(u.ResourceChanges)
			}
			return webhooks.Description{Project: st.Project, Stack: st.Name, UserID: u.RequestedBy, Fields: map[string]any{
				"updateUrl": s.updateURL(org, st, u),
				"kind":      u.Kind, "result": u.Status, "resourceChanges": changes, "isPreview": u.Preview,
			}}, nil
		},
	})
}

func (s *Service) updateURL(org string, st store.Stack, u store.Update) string {
	if u.Preview {
		return s.console.Preview(org, st.Project, st.Name, u.ID)
	}
	return s.console.Update(org, st.Project, st.Name, u.Version)
}
