package integrations

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

// Repos returns a page of the repositories that stacks may use, and the next page, or "".
func (s *Service) Repos(ctx context.Context, org store.Organization, id, page string) (repos []vcs.Repo, next string, err error) {
	i, set, err := s.settings(ctx, org, id)
	if err != nil {
		return nil, "", err
	}
	if len(set.Repositories) > 0 || i.Provider == vcs.ProviderCustom {
		for _, r := range set.Repositories {
			repos = append(repos, vcs.Repo{RepoID: vcs.RepoID{ID: r.Name, Name: r.Name}})
		}
		return repos, "", nil
	}
	client, err := s.Client(ctx, i)
	if err != nil {
		return nil, "", err
	}
	lister, ok := client.(vcs.Lister)
	if !ok {
		return nil, "", fault.Invalid("this forge cannot list repositories")
	}
	if page, err = s.openPage(ctx, i.ID, page); err != nil {
		return nil, "", err
	}
	repos, next, err = lister.Repos(ctx, page)
	if err != nil {
		return nil, "", forgeError(err)
	}
	next, err = s.sealPage(ctx, i.ID, next)
	return repos, next, err
}

// maxPage bounds the names of pages.
const maxPage = 16_000

// pageScope is the encryption scope of the names of an integration's pages. A name contains the path of
// a request to the forge: callers that chose it could read anything that the credential may.
func pageScope(integrationID string) string { return "vcs-page/" + integrationID }

// sealPage returns the name by which a caller can ask for a page of the forge.
func (s *Service) sealPage(ctx context.Context, integrationID, page string) (string, error) {
	if page == "" {
		return "", nil
	}
	sealed, err := s.opts.Secrets.Encrypt(ctx, pageScope(integrationID), []byte(page))
	return base64.RawURLEncoding.EncodeToString(sealed), fault.While(err, "encrypting the name of the next page")
}

// openPage returns the page of the forge that a name from [Service.sealPage] means.
func (s *Service) openPage(ctx context.Context, integrationID, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	unknown := fault.Invalid("the page of repositories is not one that this integration's list named; begin with the first page")
	sealed, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil || len(name) > maxPage {
		return "", unknown
	}
	page, err := s.opts.Secrets.Decrypt(ctx, pageScope(integrationID), sealed)
	if fault.KindOf(err) == fault.KindInvalid {
		return "", unknown
	}
	return string(page), err
}

// Branches returns the names of the branches of a repository that stacks may use.
func (s *Service) Branches(ctx context.Context, org store.Organization, id, name string) ([]string, error) {
	i, set, err := s.settings(ctx, org, id)
	if err != nil {
		return nil, err
	}
	listed, ok := set.allowed(i.Provider, name)
	if !ok {
		return nil, fault.NotFound("the integration has no repository %q", name)
	}
	client, err := s.Client(ctx, i)
	if err != nil {
		return nil, err
	}
	repo, err := client.Find(ctx, listed)
	if err != nil {
		return nil, forgeError(err)
	}
	refs, err := client.Refs(ctx, repo.RepoID, []string{vcs.BranchPrefix})
	if err != nil {
		return nil, forgeError(err)
	}
	var names []string
	for _, r := range refs {
		names = append(names, strings.TrimPrefix(r.Name, vcs.BranchPrefix))
	}
	slices.Sort(names)
	return names, nil
}

func (s *Service) settings(ctx context.Context, org store.Organization, id string) (store.VCSIntegration, Settings, error) {
	i, err := s.Get(ctx, org, id)
	if err != nil {
		return i, Settings{}, err
	}
	set, err := SettingsOf(i)
	return i, set, err
}

// forgeError returns the error of a forge in the form for clients.
func forgeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vcs.ErrNotFound), errors.Is(err, vcs.ErrForeign):
		return fault.Wrap(fault.KindNotFound, err, "%s", err)
	default:
		return fault.Wrap(fault.KindUnavailable, err, "the forge could not be asked: %s", err)
	}
}
