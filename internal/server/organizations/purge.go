package organizations

import (
	"context"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/stacks/states"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const (
	// rowsPerWrite is the number of rows that one transaction removes, because it blocks other writers.
	rowsPerWrite = 500
	// page is the number of stacks and jobs that are read at once.
	page = 50
)

// Purge removes what deleted organizations stored, in small transactions. It removes blobs before the rows that name
// them, so that a server which stops in between finds the rest again. It uses at most a twentieth of a core.
func (s *Service) Purge(ctx context.Context) error {
	ids, err := store.Read(ctx, s.db, (*store.Tx).DeletedOrganizations)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.purge(ctx, id); err != nil {
			return err
		}
		s.log.WithField("organization", id).Info("removed what a deleted organization had stored")
	}
	return nil
}

func (s *Service) purge(ctx context.Context, id string) error {
	err := s.each(ctx, id, (*store.Tx).StacksOfOrganization, func(stacks []string) error {
		for _, stack := range stacks {
			if err := s.purgeStack(ctx, id, stack); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = s.each(ctx, id, (*store.Tx).JobsOfOrganization, func(jobs []string) error {
		return retry.Paced(ctx, func() error {
			for _, job := range jobs {
				if err := s.db.Blobs().Delete(ctx, joblog.Blobs(job)); err != nil {
					return err
				}
			}
			return s.write(ctx, scope.Organization(id), func(tx *store.Tx) error { return tx.PurgeJobs(jobs) })
		})
	})
	if err == nil {
		err = s.each(ctx, id, (*store.Tx).PacksOfOrganization, func(packs []string) error {
			for _, pack := range packs {
				if err := s.purgePack(ctx, id, pack); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = s.each(ctx, id, (*store.Tx).EvaluationsOfOrganization, func(jobs []string) error {
			return retry.Paced(ctx, func() error {
				for _, job := range jobs {
					if err := s.db.Blobs().Delete(ctx, joblog.Blobs(job)); err != nil {
						return err
					}
				}
				return s.write(ctx, scope.Organization(id), func(tx *store.Tx) error { return tx.PurgeEvaluations(jobs) })
			})
		})
	}
	if err == nil {
		err = s.each(ctx, id, (*store.Tx).EnvironmentsOfOrganization, func(list []string) error {
			for _, environment := range list {
				if err := s.purgeEnvironment(ctx, id, environment); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for done := false; err == nil && !done; {
		err = retry.Paced(ctx, func() error {
			return s.write(ctx, scope.Organization(id), func(tx *store.Tx) (err error) {
				done, err = tx.PurgeOrganization(id, rowsPerWrite)
				return err
			})
		})
	}
	return err
}

func (s *Service) purgeStack(ctx context.Context, id, stack string) error {
	owners := scope.Organization(id).And(scope.Stack(id, stack))
	for done := false; !done; {
		err := retry.Paced(ctx, func() error {
			return s.write(ctx, owners, func(tx *store.Tx) (err error) {
				done, err = tx.DeleteUpdates(stack, rowsPerWrite)
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	if err := s.db.Blobs().Delete(ctx, states.StackBlobs(stack)); err != nil {
		return err
	}
	return s.write(ctx, owners, func(tx *store.Tx) error { return tx.RemoveStack(stack) })
}

func (s *Service) purgePack(ctx context.Context, id, pack string) error {
	blobs, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return tx.BlobsOfPack(pack) })
	if err != nil {
		return err
	}
	for _, blob := range blobs {
		if err := s.db.Blobs().Delete(ctx, blob); err != nil {
			return err
		}
	}
	return s.write(ctx, scope.Organization(id), func(tx *store.Tx) error { return tx.PurgePolicyPack(pack) })
}

func (s *Service) purgeEnvironment(ctx context.Context, id, environment string) error {
	for done := false; !done; {
		err := retry.Paced(ctx, func() error {
			return s.write(ctx, scope.Organization(id), func(tx *store.Tx) (err error) {
				done, err = tx.PurgeEnvironment(environment, rowsPerWrite)
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) write(ctx context.Context, owners scope.Set, fn func(tx *store.Tx) error) error {
	return fault.While(s.db.Write(ctx, owners.Remaining(), fn), "removing what a deleted organization stored")
}

// each removes what belongs to a deleted organization, a page at a time, until nothing of it remains.
func (s *Service) each(ctx context.Context, id string, list func(tx *store.Tx, orgID string, limit int) ([]string, error), remove func(ids []string) error) error {
	for {
		ids, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]string, error) { return list(tx, id, page) })
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := remove(ids); err != nil {
			return err
		}
	}
}
