package admin

import (
	"context"

	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// ImportEnvironments makes the environments of an organization equal to the definitions in a folder.
var ImportEnvironments = Operation[EnvironmentFiles, ImportedEnvironments]{"environment-import", (*Service).importEnvironments}

// EnvironmentFiles are the definitions in a folder. An empty organization is the only one.
type EnvironmentFiles struct {
	Organization string        `json:"organization,omitempty"`
	Files        []source.File `json:"files"`
	// EncryptSecrets permits plaintext secrets, Delete deletes the environments that the folder does not contain, and DryRun
	// changes nothing.
	EncryptSecrets bool `json:"encryptSecrets,omitempty"`
	Delete         bool `json:"delete,omitempty"`
	DryRun         bool `json:"dryRun,omitempty"`
}

// ImportedEnvironments says what an import does, or has done if Applied is set.
type ImportedEnvironments struct {
	source.Plan
	Applied bool `json:"applied"`
}

func (s *Service) importEnvironments(ctx context.Context, q EnvironmentFiles) (ImportedEnvironments, error) {
	if s.Sources == nil {
		return ImportedEnvironments{}, fault.New(fault.KindUnavailable, "only the running server can import environments, because it encrypts their secrets: start it, and repeat the command")
	}
	org, err := s.organization(ctx, q.Organization)
	if err != nil {
		return ImportedEnvironments{}, err
	}
	o := source.Options{Plaintext: q.EncryptSecrets, Differences: true}
	if q.Delete {
		o.Deletes = func(store.Environment) bool { return true }
	}
	plan, err := s.Sources.Plan(ctx, operator, org, q.Files, o)
	if err != nil || q.DryRun || plan.Failed() {
		return ImportedEnvironments{Plan: plan}, err
	}
	return ImportedEnvironments{plan, true}, s.Sources.Apply(ctx, operator, org, plan, nil)
}
