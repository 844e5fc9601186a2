package integrations

import (
	"cmp"
	"context"

	"workflowagent/internal/server/store"
)

// Watched is a repository of an integration that stacks watch.
type Watched struct {
	Integration store.VCSIntegration
	// Repo has only a name until the forge has reported its id.
	Repo    store.VCSRepo
	Watches []store.VCSWatch
}

// Problem returns why the repository cannot be found or polled, or "".
func (w Watched) Problem() string {
	for _, watch := range w.Watches {
		if w.Repo.ID == "" && watch.Problem != "" {
			return watch.Problem
		}
	}
	return cmp.Or(w.Repo.Problem, w.Integration.Problem)
}

// Watched returns the repositories of an integration that stacks watch, in the order of their stacks.
func (s *Service) Watched(ctx context.Context, org store.Organization, id string) ([]Watched, error) {
	return store.Read(ctx, s.db, func(tx *store.Tx) ([]Watched, error) {
		i, err := Find(tx, org, id)
		if err != nil {
			return nil, err
		}
		watches, err := tx.WatchesOfIntegration(id)
		if err != nil {
			return nil, err
		}
		var out []Watched
		at := map[string]int{}
		for _, w := range watches {
			key := cmp.Or(w.RepoID, "/"+w.Name)
			n, ok := at[key]
			if !ok {
				repo, err := repoOfWatch(tx, w)
				if err != nil {
					return nil, err
				}
				n, at[key] = len(out), len(out)
				out = append(out, Watched{Integration: i, Repo: repo})
			}
			out[n].Watches = append(out[n].Watches, w)
		}
		return out, nil
	})
}

// WatchedBy returns the repository that a stack watches. ok is not set if it watches none.
func (s *Service) WatchedBy(ctx context.Context, st store.Stack) (out Watched, ok bool, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) error {
		w, err := tx.Watch(st.ID)
		if err != nil {
			return store.IgnoreMissing(err)
		}
		out.Watches, ok = []store.VCSWatch{w}, true
		if out.Integration, err = tx.Integration(w.IntegrationID); err != nil {
			return err
		}
		out.Repo, err = repoOfWatch(tx, w)
		return err
	})
	return out, ok, err
}

func repoOfWatch(tx *store.Tx, w store.VCSWatch) (store.VCSRepo, error) {
	if w.RepoID == "" {
		return store.VCSRepo{IntegrationID: w.IntegrationID, Name: w.Name}, nil
	}
	return tx.Repo(w.RepoID)
}
