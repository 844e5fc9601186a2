package admin

import (
	"context"
	"time"

	"workflowagent/internal/server/environments/source"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/sources"
	"workflowagent/internal/server/store"
)

// The operations on the repository from which an organization's environments come.
var (
	ShowEnvironmentSource   = Operation[SourceOf, EnvironmentSource]{"environment-source-show", (*Service).showSource}
	SetEnvironmentSource    = Operation[NewEnvironmentSource, Synchronization]{"environment-source-set", (*Service).setSource}
	RemoveEnvironmentSource = Operation[SourceOf, None]{"environment-source-remove", (*Service).removeSource}
	SyncEnvironmentSource   = Operation[SyncOf, Synchronization]{"environment-source-sync", (*Service).syncSource}
)

// SourceOf names an organization. An empty one is the only one.
type SourceOf struct {
	Organization string `json:"organization,omitempty"`
}

// EnvironmentSource is the source of an organization's environments, with its state.
type EnvironmentSource struct {
	Integration string     `json:"integration"` // name
	Repository  string     `json:"repository"`
	Branch      string     `json:"branch"`
	Folder      string     `json:"folder"`
	Delete      bool       `json:"delete"`
	Checks      bool       `json:"checkPullRequests"`
	SetBy       string     `json:"setBy"`
	Read        string     `json:"readCommit"`
	Commit      string     `json:"appliedCommit"`
	Applied     *time.Time `json:"applied,omitempty"`
	Problem     string     `json:"problem"`
}

// NewEnvironmentSource sets a source.
type NewEnvironmentSource struct {
	Organization string `json:"organization,omitempty"`
	Integration  string `json:"integration,omitempty"` // name or id; "" is the only one
	Repository   string `json:"repository"`
	Branch       string `json:"branch"`
	Folder       string `json:"folder"`
	Delete       bool   `json:"delete,omitempty"`
	NoChecks     bool   `json:"noChecks,omitempty"`
	DryRun       bool   `json:"dryRun,omitempty"`
}

// SyncOf requests a synchronization.
type SyncOf struct {
	Organization string `json:"organization,omitempty"`
	DryRun       bool   `json:"dryRun,omitempty"`
}

// Synchronization says what the newest commit would change, for a dry run.
type Synchronization struct {
	Commit string       `json:"commit,omitempty"`
	Plan   *source.Plan `json:"plan,omitempty"`
}

// sourced returns an organization, if the server can synchronize.
func (s *Service) sourced(ctx context.Context, name string) (store.Organization, error) {
	if s.EnvironmentSources == nil {
		return store.Organization{}, fault.New(fault.KindUnavailable, "only the running server can read repositories: start it, and repeat the command")
	}
	return s.organization(ctx, name)
}

func (s *Service) showSource(ctx context.Context, q SourceOf) (EnvironmentSource, error) {
	org, err := s.sourced(ctx, q.Organization)
	if err != nil {
		return EnvironmentSource{}, err
	}
	src, err := s.EnvironmentSources.Get(ctx, org)
	if err != nil {
		return EnvironmentSource{}, err
	}
	i, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSIntegration, error) { return tx.Integration(src.IntegrationID) })
	out := EnvironmentSource{
		Integration: i.Name, Repository: src.Repository, Branch: src.Branch, Folder: src.Folder, Delete: src.Deletes, Checks: src.Checks,
		SetBy: src.CreatedBy, Read: src.Tried, Commit: src.Applied, Problem: src.Problem,
	}
	if !src.AppliedAt.IsZero() {
		out.Applied = &src.AppliedAt
	}
	return out, err
}

// integrationNamed returns the id of an organization's integration.
func (s *Service) integrationNamed(ctx context.Context, org store.Organization, name string) (string, error) {
	all, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.VCSIntegration, error) { return tx.Integrations(org.ID) })
	if err != nil {
		return "", err
	}
	var found []string
	for _, i := range all {
		if name == "" || name == i.ID || name == i.Name {
			found = append(found, i.ID)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", fault.Invalid("%d integrations of %s match: name one by its id", len(found), org.Name)
	case name == "":
		return "", fault.Invalid("%s has no integration; add one in the console: Settings, Integrations", org.Name)
	}
	return "", fault.NotFound("%s has no integration %q", org.Name, name)
}

func (s *Service) setSource(ctx context.Context, q NewEnvironmentSource) (Synchronization, error) {
	org, err := s.sourced(ctx, q.Organization)
	if err != nil {
		return Synchronization{}, err
	}
	id, err := s.integrationNamed(ctx, org, q.Integration)
	if err != nil {
		return Synchronization{}, err
	}
	set := sources.Settings{IntegrationID: id, Repository: q.Repository, Branch: q.Branch, Folder: q.Folder, Deletes: q.Delete, Checks: !q.NoChecks}
	if q.DryRun {
		return s.previewSource(ctx, org, set)
	}
	_, err = s.EnvironmentSources.Set(ctx, operator, org, set)
	return Synchronization{}, err
}

func (s *Service) previewSource(ctx context.Context, org store.Organization, set sources.Settings) (Synchronization, error) {
	plan, commit, err := s.EnvironmentSources.Preview(ctx, org, set)
	return Synchronization{commit, &plan}, err
}

func (s *Service) removeSource(ctx context.Context, q SourceOf) (None, error) {
	org, err := s.sourced(ctx, q.Organization)
	if err != nil {
		return None{}, err
	}
	return None{}, s.EnvironmentSources.Remove(ctx, org)
}

func (s *Service) syncSource(ctx context.Context, q SyncOf) (Synchronization, error) {
	org, err := s.sourced(ctx, q.Organization)
	if err != nil {
		return Synchronization{}, err
	}
	if !q.DryRun {
		return Synchronization{}, s.EnvironmentSources.SyncNow(ctx, org)
	}
	src, err := s.EnvironmentSources.Get(ctx, org)
	if err != nil {
		return Synchronization{}, err
	}
	return s.previewSource(ctx, org, sources.SettingsOf(src))
}
