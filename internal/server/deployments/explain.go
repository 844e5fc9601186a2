package deployments

import (
	"context"
	"errors"
	"strings"
	"time"

	"workflowagent/internal/server/deployments/cause"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// eventsTime bounds the time for reading the events of a failed update, for which its result waits.
const eventsTime = 3 * time.Second

// evidence reads what explains the failure of a job: its settings, events and log. A part that cannot be read is
// missing, because the result must be recorded without it, too.
func (s *Service) evidence(ctx context.Context, job store.Job) cause.Evidence {
	var e cause.Evidence
	log := s.log.WithField("deployment_id", job.DeploymentID)
	update, err := store.Read(ctx, s.db, func(tx *store.Tx) (*store.Update, error) {
		d, err := tx.Deployment(job.DeploymentID)
		if err != nil {
			return nil, err
		}
		e.Image, e.Repository = sourceOf(d.Configuration)
		list, err := updatesOf(tx, d, 1)
		if err != nil || len(list) == 0 || !updateMatches(d.Operation, store.UpdateKind{Kind: list[0].Kind, Preview: list[0].Preview}) {
			return nil, err
		}
		return &list[0], nil
	})
	if err == nil && update != nil && s.opts.Updates != nil {
		reading, cancel := context.WithTimeout(ctx, eventsTime)
		tree, failed := s.opts.Updates.ChangesOf(reading, *update)
		cancel()
		if err = failed; err == nil {
			e.Read(tree)
		}
	}
	ending, failed := s.logs.Ending(ctx, job, cause.Step(job), e.Subjects())
	e.Log = ending
	if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
		log.WithError(err).Warn("finding the cause of a failure; the deployment's page shows less")
	}
	return e
}

// sourceOf returns the image and the name of the repository in a deployment's settings; "" for those that they lack.
func sourceOf(configuration string) (image, repository string) {
	set, err := workflow.ParseSettings([]byte(configuration))
	if err != nil {
		return "", ""
	}
	if g := set.Git(); g != nil {
		if r, err := workflow.ParseRepository(g.RepoURL); err == nil {
			_, repository, _ = strings.Cut(r.Name(), "/")
		}
	}
	return set.Image(), repository
}

// Cause returns the cause of a deployment's failure: the stored one, or one from the job and its log if an earlier version of
// the server, or a stock agent, ended the job. It is nil if the deployment has not failed.
func (s *Service) Cause(ctx context.Context, d Details) (*store.Cause, error) {
	known := d.Job.Cause
	if known != nil && (known.Line > 0 || known.Kind == cause.Start || known.Kind == cause.Agent) {
		return known, nil
	}
	var e cause.Evidence
	e.Image, e.Repository = sourceOf(d.Configuration)
	var err error
	if e.Log.First, e.Log.HasFirst, err = s.logs.FirstError(ctx, d.Job, cause.Step(d.Job)); err != nil {
		return known, err
	}
	if found := cause.Of(d.Job, e); found != nil && (known == nil || found.Line > 0) {
		return found, nil
	}
	return known, nil
}
