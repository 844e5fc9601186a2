package deployments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// workspaceOf returns the workspace of a deployment's job, or nil if the job keeps nothing.
func workspaceOf(d store.Deployment, set *workflow.Settings, image string, generation int64) (*workflow.Workspace, error) {
	if !set.Caches() || d.Trust == string(trustNone) {
		return nil, nil
	}
	// The ids remain when a stack or an organization is renamed, and are not used again.
	scope, err := hashOf("workspace", d.OrgID, d.StackID, d.Trust)
	if err != nil {
		return nil, err
	}
	var secrets []string
	_ = set.EachSecret(func(member string, v *workflow.Secret) error {
		if v != nil && v.IsSecret() {
			secrets = append(secrets, member)
		}
		return nil
	})
	slices.Sort(secrets)
	var variables []string
	for _, v := range set.Variables() {
		variables = append(variables, v.Name)
	}
	repository := ""
	if g := set.Git(); g != nil {
		repository = g.RepoURL
	}
	parts := []any{image, repository, secrets, variables, generation}
	if names := set.Environments(); len(names) > 0 { // else the keys of earlier versions remain valid
		parts = append(parts, names)
	}
	key, err := hashOf(parts...)
	if err != nil {
		return nil, err
	}
	return &workflow.Workspace{Scope: scope, Key: key}, nil
}

// ClearCache makes the next jobs of a stack discard what earlier ones have kept. Running jobs keep nothing
// that later ones can use.
func (s *Service) ClearCache(ctx context.Context, p identity.Principal, st store.Stack) error {
	if err := p.Check(st, identity.Operate); err != nil {
		return err
	}
	return s.db.Write(ctx, st.Scope(), func(tx *store.Tx) error {
		queue, err := tx.StackQueue(st.ID)
		if err != nil {
			return err
		}
		queue.CacheGeneration++
		if err := tx.SaveStackQueue(queue); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{OrgID: st.OrgID, Action: audit.CacheCleared, Subject: audit.Stack(st), Detail: map[string]any{"generation": queue.CacheGeneration}})
	})
}

// newUses returns the counter of the uses of workspaces.
func newUses() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workflow_server_workspaces_total", Help: "Jobs with a workspace that fetched their source, by what they found: reused, fresh, or unused if they ran without it.",
	}, []string{"use"})
}

// WorkspaceMetrics returns a collector of the uses of workspaces.
func (s *Service) WorkspaceMetrics() prometheus.Collector { return s.uses }

// recordUse records the use of a job's workspace, once for each claim, because runners repeat reports.
func (s *Service) recordUse(tx *store.Tx, source *store.StepState, use protocol.WorkspaceUse) {
	switch use {
	case protocol.WorkspaceReused, protocol.WorkspaceFresh, protocol.WorkspaceUnused:
	default:
		return
	}
	if source.Workspace == "" {
		source.Workspace = use
		tx.OnCommit(func() { s.uses.WithLabelValues(string(use)).Inc() })
	}
}

// hashOf returns the hexadecimal SHA-256 of values. Different lists of values have different hashes.
func hashOf(values ...any) (string, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("hashing the identity of a workspace: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
