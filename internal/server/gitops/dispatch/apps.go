package dispatch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/due"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

// dueApps returns work about the GitHub Apps of integrations. After a start, everything is due:
// deliveries can have failed while no server ran.
func (p *polls) dueApps(apps []store.VCSIntegration, now time.Time) (work []due.Work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.apps, func(_ string, due time.Time) bool { return now.Sub(due) > time.Hour }) // deleted integrations
	for _, i := range apps {
		if !now.Before(p.apps[i.ID]) {
			work = append(work, poll(i.OrgID, i.ID, i.ID, func(ctx context.Context) error { return p.checkApp(ctx, i, now) }))
		}
	}
	return work
}

func (p *polls) checkApp(ctx context.Context, i store.VCSIntegration, now time.Time) error {
	again := safety
	if i.Installation == "" {
		again = p.s.opts.Interval
	}
	p.postponeApp(i.ID, now.Add(retry.Spread(again)))
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	if i.Installation == "" {
		_, err := p.s.opts.Integrations.CheckApp(ctx, store.Organization{ID: i.OrgID}, i.ID)
		return p.s.unanswered(ctx, i, err)
	}
	more, err := p.s.redeliver(ctx, i)
	if more {
		p.postponeApp(i.ID, now)
	}
	return err
}

func (p *polls) postponeApp(integrationID string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apps[integrationID] = until
}

// redeliver processes the oldest deliveries that the forge could not hand over, and reports whether
// there can be more. Each is stored once, whatever the webhook and later attempts bring.
func (s *Service) redeliver(ctx context.Context, i store.VCSIntegration) (more bool, err error) {
	set, err := integrations.SettingsOf(i)
	if err != nil || set.Events == integrations.EventsPoll {
		return false, err
	}
	client, err := s.opts.Integrations.Client(ctx, i)
	if err != nil {
		return false, s.unanswered(ctx, i, err)
	}
	source, ok := client.(vcs.Redeliverer)
	if !ok {
		return false, nil
	}
	since := i.DeliveriesAt
	if since.IsZero() {
		since = i.CreatedAt
	}
	list, until, err := source.Undelivered(ctx, since)
	if err != nil {
		return false, s.unanswered(ctx, i, err)
	}
	forge, err := s.opts.Integrations.Forge(i)
	if err != nil {
		return false, err
	}
	for _, d := range list {
		p, err := parse(forge, d)
		if err != nil {
			s.log.WithError(err).WithField("integration_id", i.ID).Warn("reading a delivery that failed; it is ignored")
			continue
		}
		if p.Installation != i.Installation {
			continue
		}
		if _, err := s.store(ctx, i, p, SourceRecovered); err != nil {
			return false, err
		}
	}
	if !until.After(i.DeliveriesAt) {
		return false, nil
	}
	return len(list) > 0 && until.After(since), s.db.Write(ctx, scope.Free, func(tx *store.Tx) error {
		return tx.SetDeliveriesAt(i.ID, i.AppID, until)
	})
}

// unanswered logs that a forge could not be asked. The work is repeated at its time.
func (s *Service) unanswered(ctx context.Context, i store.VCSIntegration, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	s.log.WithError(err).WithFields(logrus.Fields{"integration_id": i.ID}).Warn("asking the forge about the GitHub App failed; it is asked again later")
	if noted := s.db.Write(context.WithoutCancel(ctx), scope.Free, func(tx *store.Tx) error { return s.opts.Integrations.Note(tx, i.ID, err) }); noted != nil {
		return store.IgnoreMissing(fmt.Errorf("recording the state of an integration: %w", noted))
	}
	return nil
}
