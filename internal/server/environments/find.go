package environments

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/grants"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// reservedProjects are no projects, because paths of the API contain them in the place of one.
var reservedProjects = []string{"yaml", "restore"}

func validName(name string) bool { return workflow.IsName(name) && name != "." && name != ".." }

// Reference names an environment of an organization.
type Reference struct {
	Project, Name string
	Version       string // number or tag of a revision; "" or [store.LatestVersion] for the newest one
}

// ParseReference parses the name of an environment in a definition or in the configuration of a stack:
// [project/]environment[@version].
func ParseReference(text string) (Reference, error) {
	path, version, versioned := strings.Cut(text, "@")
	r := Reference{Project: DefaultProject, Name: path, Version: version}
	if project, name, ok := strings.Cut(path, "/"); ok {
		r.Project, r.Name = project, name
	}
	if !validName(r.Project) || !validName(r.Name) || versioned && !validName(version) {
		return r, fault.Invalid("%q does not name an environment; write project/environment or project/environment@version", text)
	}
	return r, nil
}

// String returns the reference as [ParseReference] reads it.
func (r Reference) String() string {
	if r.Version == "" {
		return r.Project + "/" + r.Name
	}
	return r.Project + "/" + r.Name + "@" + r.Version
}

// Found is a revision of an environment.
type Found struct {
	store.Environment
	Revision store.EnvironmentRevision
	// Silent is set for a draft that gets no identity tokens and makes no calls.
	Silent bool
}

// Find returns an environment by its names, if the caller has a permission on it.
func (s *Service) Find(ctx context.Context, p identity.Principal, need store.EnvironmentPermission, org, project, name string) (store.Environment, error) {
	e, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Environment, error) { return findIn(tx, p, need, org, project, name) })
	return e, fault.While(err, "looking up an environment")
}

// Revision returns the revision of an environment that a reference names, if the caller has a permission on the
// environment. The replacement of a retracted revision takes its place.
func (s *Service) Revision(ctx context.Context, p identity.Principal, need store.EnvironmentPermission, org string, r Reference) (Found, error) {
	out, err := store.Read(ctx, s.db, func(tx *store.Tx) (f Found, err error) {
		if f.Environment, err = findIn(tx, p, need, org, r.Project, r.Name); err == nil {
			f.Revision, err = revisionOf(tx, f.Environment, r.Version)
		}
		return f, err
	})
	return out, fault.While(err, "looking up a revision of an environment")
}

// findIn is [Service.Find] within a transaction.
func findIn(tx *store.Tx, p identity.Principal, need store.EnvironmentPermission, org, project, name string) (store.Environment, error) {
	if p.Kind == identity.KindJob {
		return findForJob(tx, p, need, org, project, name)
	}
	e, err := tx.EnvironmentFor(org, project, name, p.User.ID, p.TeamID)
	if err != nil {
		return e.Environment, store.IfMissing(err, p.NoEnvironment(org, project, name))
	}
	return e.Environment, p.CheckEnvironment(e, need)
}

// findForJob returns an environment for a job, or the error that says which grant the job lacks.
func findForJob(tx *store.Tx, p identity.Principal, need store.EnvironmentPermission, org, project, name string) (store.Environment, error) {
	e, err := tx.EnvironmentForJob(org, project, name, p.User.ID, p.DeploymentID, p.JobID)
	if err == nil && (p.OnEnvironment(e) >= need || need > store.OpenEnvironment && p.SeesEnvironment(e)) { // no grant covers changes
		return e.Environment, p.CheckEnvironment(e, need)
	}
	if err = store.IgnoreMissing(err); err != nil {
		return store.Environment{}, err
	}
	switch o, err := tx.OrganizationByName(org); {
	case errors.Is(err, store.ErrNotFound), err == nil && o.ID != p.Org.ID:
		return store.Environment{}, p.NoEnvironment(org, project, name)
	case err != nil:
		return store.Environment{}, err
	}
	return store.Environment{}, grants.EnvironmentRefusal(tx, p, project, name)
}

// revisionOf returns the revision that a version names, or the one that replaces it.
func revisionOf(tx *store.Tx, e store.Environment, version string) (store.EnvironmentRevision, error) {
	number, err := numberOf(tx, e, version)
	if err != nil {
		return store.EnvironmentRevision{}, err
	}
	for {
		info, err := tx.RevisionInfo(e.ID, number)
		if err != nil {
			return store.EnvironmentRevision{}, store.IfMissing(err, noVersion(e, version))
		}
		if info.Replacement == 0 {
			r, err := tx.Revision(e.ID, number)
			return r, store.IfMissing(err, noVersion(e, version))
		}
		number = info.Replacement // a revision that existed when this one was retracted, so that the loop ends
	}
}

// numberOf returns the number that a version names. No revision need have it.
func numberOf(tx *store.Tx, e store.Environment, version string) (int64, error) {
	if version == "" || version == store.LatestVersion {
		return e.LastNumber, nil
	}
	if isNumber(version) {
		number, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			return 0, noVersion(e, version)
		}
		return number, nil
	}
	t, err := tx.RevisionTag(e.ID, version)
	return t.Number, store.IfMissing(err, noVersion(e, version))
}

// isNumber reports whether clients take a version for a number: if it begins with a digit.
func isNumber(version string) bool { return version[0] >= '0' && version[0] <= '9' }

func noVersion(e store.Environment, version string) error {
	return fault.NotFound("environment %s has no version %q; run pulumi env version history %s", e.Ref(), version, e.Ref())
}
