package deployments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// workspaceOf returns the workspace of a deployment's job, or nil if the job keeps nothing.
func workspaceOf(d store.Deployment, set *workflow.Settings, image string, generation int64) (*workflow.Workspace, error) {
	if set.CacheOptions == nil || !set.CacheOptions.Enable || d.Trust == string(trustNone) {
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
	key, err := hashOf(image, repository, secrets, variables, generation)
	if err != nil {
		return nil, err
	}
	return &workflow.Workspace{Scope: scope, Key: key}, nil
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
