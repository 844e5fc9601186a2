package evaluations

import (
	"context"
	"time"

	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
)

// Log returns a page of an evaluation's log after a continuation token; "" starts at the beginning.
func (s *Service) Log(ctx context.Context, st store.Stack, id, token string) (joblog.Page, error) {
	now, err := s.db.Now(ctx)
	if err != nil {
		return joblog.Page{}, err
	}
	job, err := s.LogJob(ctx, st, id)
	if err != nil {
		return joblog.Page{}, err
	}
	return s.logs.Read(ctx, joblog.View{Now: now, Job: job}, token)
}

// LogJob returns the job of an evaluation of a stack, whose log [Service.Logs] has.
func (s *Service) LogJob(ctx context.Context, st store.Stack, id string) (store.Job, error) {
	e, err := s.Get(ctx, st, id)
	return e.Job(), err
}

// Logs returns the logs of evaluations. Callers must obtain the job from [Service.LogJob], which finds it only within the
// stack.
func (s *Service) Logs() *joblog.Store { return s.logs }

// followEvery is the interval at which a followed log is read.
const followEvery = 2 * time.Second

// FollowLog calls grew for each stream of an evaluation's log, and again when the stream has grown. It returns after the
// end of the job, when ctx is done, or with an error of grew.
func (s *Service) FollowLog(ctx context.Context, st store.Stack, id string, grew func(deployments.LogSize) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	known := deployments.KnownSizes{}
	for {
		job, err := s.LogJob(ctx, st, id)
		if err != nil {
			return err
		}
		if err := known.Report(ctx, s.logs, job, grew); err != nil || job.Status.Final() {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
