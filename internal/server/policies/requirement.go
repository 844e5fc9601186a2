package policies

import (
	"context"
	"encoding/json"
	"slices"

	"workflowagent/internal/server/store"
)

// Requirement is a required pack in the form of clients.
type Requirement struct {
	Name         string                     `json:"name"`
	Version      int64                      `json:"version"`
	VersionTag   string                     `json:"versionTag"`
	DisplayName  string                     `json:"displayName"`
	PackLocation string                     `json:"packLocation"`
	Config       map[string]json.RawMessage `json:"config,omitempty"`
	Environments []string                   `json:"environments,omitempty"`
	Exceptions   map[string]json.RawMessage `json:"exceptions,omitempty"` // clients before 3.276 ignore them
}

// Requirements returns the packs of a stack with a mode, or with any if it is "", in the form of clients. The addresses
// of the archives are credentials.
func (s *Service) Requirements(ctx context.Context, st store.Stack, mode string) ([]Requirement, error) {
	modes := []string{mode}
	if mode == "" {
		modes = []string{Preventative, Audit}
	}
	out, seen := []Requirement{}, map[string]bool{}
	for _, mode := range modes {
		list, err := s.packsOf(ctx, st, mode)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(r Required) bool {
			known := seen[r.VersionID]
			seen[r.VersionID] = true
			return known
		})
		part, err := s.Wire(ctx, list)
		if err != nil {
			return nil, err
		}
		out = append(out, part...)
	}
	return out, nil
}

// Wire returns packs in the form of clients. The addresses of the archives are credentials.
func (s *Service) Wire(ctx context.Context, list []Required) ([]Requirement, error) {
	out := make([]Requirement, len(list))
	for i, r := range list {
		location, err := s.Location(ctx, r.VersionID)
		if err != nil {
			return nil, err
		}
		out[i] = Requirement{
			Name: r.PackName, Version: r.Number, VersionTag: Label(r.Tag, r.Number), DisplayName: r.DisplayName, PackLocation: location,
			Config: r.PolicyConfig, Environments: r.Environments, Exceptions: r.Exceptions,
		}
	}
	return out, nil
}

// Location returns an address for the download of a complete version's archive. The address is a credential, and is
// valid for an hour.
func (s *Service) Location(ctx context.Context, versionID string) (string, error) {
	return s.addresses.make(ctx, s.db, download, versionID, addressLife)
}

// LocationForJob is [Service.Location] for a job, whose agent can wait for an image or for a node of a cluster before it
// fetches the archive.
func (s *Service) LocationForJob(ctx context.Context, versionID string) (string, error) {
	return s.addresses.make(ctx, s.db, download, versionID, jobAddressLife)
}
