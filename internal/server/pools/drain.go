package pools

import (
	"context"
	"fmt"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/termtext"
)

// Drain makes the server hand out no jobs to an agent, or hand them out again. The agent's jobs
// continue. A job that the server hands out at the same moment runs, too. The drain remains when the
// agent is restarted.
func (s *Service) Drain(ctx context.Context, p identity.Principal, orgID, poolID, agentID string, drained bool) error {
	if !p.CanAdminOrg(orgID) {
		return fault.Forbidden("only administrators of the organization may drain agents")
	}
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		if _, err := tx.Pool(orgID, poolID); err != nil {
			return notFound(err, poolID)
		}
		action := audit.AgentDrained
		if drained {
			if _, err := tx.Agent(poolID, agentID); err != nil {
				return store.IfMissing(err, fault.NotFound("the pool has no agent %s; agents are forgotten after an hour of silence", termtext.OneLine(agentID, 100)))
			}
			if err := tx.SaveDrain(store.DrainedAgent{PoolID: poolID, AgentID: agentID, DrainedBy: p.Name(), DrainedAt: tx.Now()}); err != nil {
				return err
			}
		} else {
			action = audit.AgentResumed
			if err := tx.DeleteDrain(poolID, agentID); err != nil {
				return store.IgnoreMissing(err)
			}
		}
		changed(tx, orgID, poolID)
		tx.Notify(identity.PoolTokenTopic, orgID) // open polls check whether their agent is drained
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: action, Subject: audit.Subject{Kind: "agent", ID: agentID, Name: agentID}, Detail: map[string]any{"pool": poolID},
		})
	})
	if err != nil && fault.KindOf(err) == "" {
		return fmt.Errorf("draining an agent: %w", err)
	}
	return err
}
