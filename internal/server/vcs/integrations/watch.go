package integrations

import (
	"errors"
	"fmt"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/plain"
	"workflowagent/internal/workflow"
)

// Watch makes a stack watch the repository in its settings, in the transaction that stores them. It
// returns an error if the settings are invalid, or if p may not choose the repository. Without an
// integration for the settings' provider, it does nothing: agents clone the repository with the
// credentials in the settings, and nothing triggers deployments.
func (s *Service) Watch(tx *store.Tx, p identity.Principal, st store.Stack, set *workflow.Settings) error {
	before, err := tx.Watch(st.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	w, ok, err := watchOf(tx, st, set, before)
	if err != nil {
		return err
	}
	if !ok {
		return tx.DeleteWatch(st.ID)
	}
	if w.IntegrationID != before.IntegrationID || w.Name != before.Name {
		if err := p.Check(st, identity.Manage); err != nil {
			return fault.Forbidden("the settings name another repository of an integration, whose credentials the stack's deployments then use: this needs the permission %q on stack %s", "admin", st.Ref())
		}
	}
	return s.save(tx, w, before)
}

// save stores a watch, and has its repository found or polled now. before is the watch that it
// replaces, or zero.
func (s *Service) save(tx *store.Tx, w, before store.VCSWatch) error {
	w.FindAt, w.Failures, w.Problem = tx.Now(), 0, ""
	if w.RepoID != "" {
		if before.RepoID != w.RepoID {
			before = store.VCSWatch{}
		}
		if err := prepare(tx, w, before); err != nil {
			return err
		}
	}
	tx.Notify(Topic, w.IntegrationID)
	return tx.SaveWatch(w)
}

// rewatch derives the watches of an organization's stacks again after an integration changed. Only
// settings that name a repository can be concerned.
func (s *Service) rewatch(tx *store.Tx, i store.VCSIntegration) error {
	rows, err := tx.SettingsWithRepository(i.OrgID)
	if err != nil {
		return err
	}
	for _, row := range rows {
		set, err := workflow.ParseSettings([]byte(row.Document))
		if err != nil {
			return fmt.Errorf("parsing the settings of stack %s: %w", row.StackID, err)
		}
		if t, ok := set.Triggers(); !ok || t.Provider != i.Provider {
			continue
		}
		st, err := tx.Stack(row.StackID)
		if err != nil {
			return err
		}
		before, err := tx.Watch(st.ID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		w, ok, err := watchOf(tx, st, set, before)
		switch {
		case fault.KindOf(err) != "" || err == nil && !ok: // ambiguous, or no longer allowed
			err = tx.DeleteWatch(st.ID)
		case err == nil:
			err = s.save(tx, w, before)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prepare has the repository of a watch polled now. The ledger forgets what no stack has watched until
// now, because it can be outdated: the commit is recorded again, so that switching on a trigger
// deploys nothing.
func prepare(tx *store.Tx, w, before store.VCSWatch) error {
	all, err := tx.WatchesOfRepo(w.RepoID)
	if err != nil {
		return err
	}
	commits, tags := before.DeployCommits && before.Branch == w.Branch, before.DeployTags
	for _, o := range all {
		if o.StackID != w.StackID {
			commits, tags = commits || o.DeployCommits && o.Branch == w.Branch, tags || o.DeployTags
		}
	}
	if w.DeployCommits && !commits {
		if err := tx.DeleteRef(w.RepoID, vcs.BranchPrefix+w.Branch); err != nil {
			return err
		}
	}
	r, err := tx.Repo(w.RepoID)
	if err != nil {
		return err
	}
	r.TagsKnown = r.TagsKnown && tags
	return errors.Join(tx.SchedulePoll(r, tx.Now()), tx.SaveRepo(r))
}

// watchOf returns what settings say about a repository. before is the current watch of the stack, or
// zero.
func watchOf(tx *store.Tx, st store.Stack, set *workflow.Settings, before store.VCSWatch) (w store.VCSWatch, ok bool, err error) {
	t, ok := set.Triggers()
	if !ok {
		return w, false, nil
	}
	for name, patterns := range map[string][]string{"paths": t.Paths, "tagFilters": t.TagFilters} {
		if err := vcs.CheckFilter(patterns); err != nil {
			return w, false, fault.Invalid("%s.%s: %s", t.Member, name, err)
		}
	}
	i, name, ok, err := choose(tx, st.OrgID, t)
	if err != nil || !ok {
		return w, false, err
	}
	w = store.VCSWatch{
		StackID: st.ID, IntegrationID: i.ID, Name: NameKey(i.Provider, name), Branch: t.Branch,
		DeployCommits: t.DeployCommits, PreviewPulls: t.PreviewPullRequests, Template: t.PullRequestTemplate, DeployTags: t.DeployTags,
		Paths: t.Paths, TagFilters: t.TagFilters, Labels: t.ReviewStackLabels,
	}
	if t.DeployPullRequest != nil {
		w.DeployPull = *t.DeployPullRequest
	}
	switch {
	case vcs.ForgeKey(i.Provider, i.Flavor) == vcs.FlavorGit:
		r, err := gitRepo(tx, i, name) // another one if the integration's address has changed
		if err != nil {
			return w, false, err
		}
		w.RepoID = r.ID
	case before.IntegrationID == w.IntegrationID && before.Name == w.Name:
		w.RepoID = before.RepoID // also if the repository was renamed since
	}
	return w, true, nil
}

// gitRepo returns the repository of a plain git server, which has no other id than its address.
func gitRepo(tx *store.Tx, i store.VCSIntegration, name string) (store.VCSRepo, error) {
	address, err := CloneURL(i, name)
	if err != nil {
		return store.VCSRepo{}, err
	}
	id, err := plain.Identify(address)
	if err != nil {
		return store.VCSRepo{}, fault.Invalid("vcs.repository: %s", err)
	}
	return Repo(tx, i, vcs.Repo{RepoID: vcs.RepoID{ID: id.ID, Name: strings.Trim(name, "/")}, CloneURL: address})
}

// Repo returns the row of a repository, and creates or renames it if necessary. The transaction must hold
// the organization.
func Repo(tx *store.Tx, i store.VCSIntegration, repo vcs.Repo) (store.VCSRepo, error) {
	r, err := tx.RepoByRemoteID(i.ID, repo.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		r = store.VCSRepo{
			ID: identity.NewID(), IntegrationID: i.ID, RemoteID: repo.ID, Name: repo.Name, CloneURL: repo.CloneURL,
			PollAt: tx.Now(), CreatedAt: tx.Now(),
		}
		return r, tx.InsertRepo(r)
	case err != nil:
		return r, err
	}
	return Rename(tx, i, r, repo)
}

// Rename gives a repository the name and the address that it has now.
func Rename(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo, repo vcs.Repo) (store.VCSRepo, error) {
	if r.Name == repo.Name {
		return r, nil
	}
	var err error
	r.Name = repo.Name
	if repo.CloneURL != "" {
		r.CloneURL = repo.CloneURL
	} else if r.CloneURL, err = CloneURL(i, repo.Name); err != nil {
		return r, err
	}
	return r, tx.SaveRepo(r)
}

// choose returns the integration that contains the repository of triggers, and the repository's name.
func choose(tx *store.Tx, orgID string, t workflow.Triggers) (chosen store.VCSIntegration, name string, ok bool, err error) {
	all, err := tx.Integrations(orgID)
	if err != nil {
		return chosen, "", false, err
	}
	matching, ofProvider := 0, 0
	for _, i := range all {
		if i.Provider != t.Provider {
			continue
		}
		ofProvider++
		if t.InstallationID != "" && t.InstallationID != i.ID && t.InstallationID != i.Installation {
			continue
		}
		listed, covers, err := covers(i, t.Repository)
		if err != nil {
			return chosen, "", false, err
		}
		if covers {
			matching++
			chosen, name = i, listed
		}
	}
	const missing = "no integration of the provider %s%s contains the repository %s, or its list of repositories does not allow it"
	switch {
	case matching == 1:
		return chosen, name, true, nil
	case matching > 1:
		err = fault.Invalid("%d integrations contain the repository %s: set %s.installationId to the id of one of them", matching, t.Repository, t.Member)
	case ofProvider > 0 && t.InstallationID != "":
		err = fault.Invalid("%s.installationId: "+missing, t.Member, t.Provider, " with this id", t.Repository)
	case ofProvider > 0 && t.Any():
		err = fault.Invalid("%s.repository: "+missing, t.Member, t.Provider, "", t.Repository)
	}
	return store.VCSIntegration{}, "", false, err
}

// Covers reports whether a repository of an integration may be used, and returns its name.
func Covers(i store.VCSIntegration, name string) (string, bool, error) { return covers(i, name) }

// covers reports whether stacks may use a repository of an integration, and returns its name.
func covers(i store.VCSIntegration, name string) (string, bool, error) {
	set, err := SettingsOf(i)
	if err != nil {
		return "", false, err
	}
	owner := i.Owner
	if i.Provider == vcs.ProviderAzure && i.Project != "" && !vcs.IsAzureID(i.Project) {
		owner += "/" + i.Project
	}
	if owner != "" && !strings.HasPrefix(NameKey(i.Provider, name), NameKey(i.Provider, owner)+"/") {
		return "", false, nil
	}
	listed, ok := set.allowed(i.Provider, name)
	return listed, ok, nil
}
