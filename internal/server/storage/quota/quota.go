// Package quota measures what each organization stores, and refuses to store more than a limit.
package quota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/words"
)

// Quota is the limit of what an organization stores in states, events, logs, policy packs and long texts, unless the organization
// has its own. A nil quota has no limit.
//
// A background measurement counts what is stored, so that the many writers need no counters. The
// quota is checked only where new work begins: a refusal during the work would leave it unfinished.
type Quota struct {
	db    *store.DB
	log   *logrus.Entry
	limit int64
}

// New returns a quota of limit bytes for each organization without its own. If limit is 0, such an organization may
// store any amount.
func New(db *store.DB, log *logrus.Entry, limit int64) *Quota {
	return &Quota{db: db, log: log, limit: limit}
}

// Admit returns an error if an organization has reached its quota.
func (q *Quota) Admit(tx *store.Tx, orgID string) error { return q.admit(tx, orgID, 1, 1) }

// large is the size of a text that counts at once, in bytes. Others wait for the next measurement,
// because the count is one row per organization, for which concurrent requests would wait.
const large = 64 << 10

// AdmitText is like [Quota.Admit] for a text of the given size, which the caller stores in the same
// transaction. It always admits a text that counts as history.
func (q *Quota) AdmitText(tx *store.Tx, orgID string, bytes int64) error {
	if bytes <= store.LongText {
		return nil
	}
	return q.admitText(tx, orgID, bytes, 1)
}

// AdmitWork is like [Quota.Admit] for work that has a text of the given size, which the caller stores in
// the same transaction.
func (q *Quota) AdmitWork(tx *store.Tx, orgID string, bytes int64) error {
	if bytes <= store.LongText {
		bytes = 1
	}
	return q.admitText(tx, orgID, bytes, 1)
}

// AdmitRelief is like [Quota.AdmitWork] for work that frees space. It refuses only large texts, and only
// beyond twice the quota: many of them would need more than the work frees.
func (q *Quota) AdmitRelief(tx *store.Tx, orgID string, bytes int64) error {
	if q == nil || bytes < large {
		return nil
	}
	return q.admitText(tx, orgID, bytes, 2)
}

func (q *Quota) admitText(tx *store.Tx, orgID string, bytes, times int64) error {
	if q == nil || bytes < large {
		return q.admit(tx, orgID, bytes, times)
	}
	return q.count(tx, orgID, bytes, times)
}

// AdmitImport returns an error if a state of the given size does not fit into an organization's
// quota. Otherwise, it counts the state, which the caller stores in the same transaction.
func (q *Quota) AdmitImport(tx *store.Tx, orgID string, bytes int64) error {
	return q.admitImport(tx, orgID, bytes, 1)
}

// AdmitRepair is like [Quota.AdmitImport], but permits twice the quota. It is for states that can be
// necessary to free space.
func (q *Quota) AdmitRepair(tx *store.Tx, orgID string, bytes int64) error {
	return q.admitImport(tx, orgID, bytes, 2)
}

func (q *Quota) admitImport(tx *store.Tx, orgID string, bytes, times int64) error {
	if q == nil {
		return nil
	}
	return q.count(tx, orgID, bytes, times)
}

// count admits what is added to the sum at once. It locks the sum before it reads it, because the writes of different
// stacks run at the same time.
func (q *Quota) count(tx *store.Tx, orgID string, bytes, times int64) error {
	if err := tx.AddImport(orgID, 0); err != nil {
		return err
	}
	if err := q.admit(tx, orgID, bytes, times); err != nil {
		return err
	}
	return tx.AddImport(orgID, bytes)
}

// Of returns the limit of an organization with its own quota, or 0 for none.
func (q *Quota) Of(own int64) int64 {
	switch {
	case own == store.NoQuota:
		return 0
	case own > 0 || q == nil:
		return own
	default:
		return q.limit
	}
}

// admit returns an error if an organization would exceed its quota that many times.
func (q *Quota) admit(tx *store.Tx, orgID string, bytes, times int64) error {
	if q == nil {
		return nil
	}
	used, err := tx.Storage(orgID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	limit := q.Of(used.Quota)
	if err != nil || limit == 0 || used.Bytes()+bytes <= limit*times {
		return err
	}
	raise := "or ask the operator of the server to raise organization_quota"
	if used.Quota > 0 {
		raise = "or ask an administrator of the server to raise the quota of the organization"
	}
	return fault.Forbidden("organization '%s' has reached its quota: it stores %s, and may store %s. "+
		"To free space, destroy and remove stacks, or shorten their settings; %s, or to lower keep_states, keep_states_for or keep_logs_for",
		used.OrgName, words.Bytes(used.Bytes()), words.Bytes(limit), raise)
}

const (
	page = 100
	// late is the time after the end of an update or a job in which most of its last events and log
	// arrive. Those who store more must have the measurement repeated.
	late = time.Minute
)

// Measure measures what the organizations store. It uses at most a twentieth of a core.
func (q *Quota) Measure(ctx context.Context) error {
	err := q.measureEach(ctx, (*store.Tx).UnmeasuredEvents, (*store.Tx).SetEventBytes, func(ctx context.Context, id string) (int64, error) {
		return store.Read(ctx, q.db, func(tx *store.Tx) (int64, error) { return tx.EventBytes(id) })
	})
	if err != nil {
		return fmt.Errorf("measuring events: %w", err)
	}
	logs := func(ctx context.Context, id string) (int64, error) { return q.db.Blobs().Total(ctx, joblog.Blobs(id)) }
	if err := q.measureEach(ctx, (*store.Tx).UnmeasuredLogs, (*store.Tx).SetLogBytes, logs); err != nil {
		return fmt.Errorf("measuring logs: %w", err)
	}
	if err := q.measureEach(ctx, (*store.Tx).UnmeasuredEvaluations, (*store.Tx).SetEvaluationBytes, logs); err != nil {
		return fmt.Errorf("measuring the logs of policy evaluations: %w", err)
	}
	return retry.Paced(ctx, func() error {
		sums, err := store.Read(ctx, q.db, (*store.Tx).MeasureStorage)
		if err != nil {
			return fmt.Errorf("measuring what is stored: %w", err)
		}
		for _, sum := range sums {
			if err := q.db.Write(ctx, scope.Free, func(tx *store.Tx) error { return tx.SaveStorage(sum) }); err != nil {
				return fmt.Errorf("recording what is stored: %w", err)
			}
		}
		return nil
	})
}

// measureEach records the sizes of finished updates or jobs. Each is measured once. One whose size
// cannot be read is skipped, and measured again the next time.
func (q *Quota) measureEach(ctx context.Context,
	list func(tx *store.Tx, before time.Time, limit int) ([]store.Unmeasured, error),
	set func(tx *store.Tx, id string, bytes int64) error,
	measure func(ctx context.Context, id string) (int64, error),
) error {
	skipped := map[string]bool{}
	for {
		var found []store.Unmeasured
		limit := page + len(skipped)
		err := retry.Paced(ctx, func() (err error) {
			found, err = store.Read(ctx, q.db, func(tx *store.Tx) ([]store.Unmeasured, error) { return list(tx, tx.Now().Add(-late), limit) })
			return err
		})
		if err != nil {
			return err
		}
		for _, u := range found {
			if skipped[u.ID] {
				continue
			}
			size, recorded := int64(0), int64(-1)
			var err error
			for err == nil {
				err = retry.Paced(ctx, func() (err error) {
					size, err = measure(ctx, u.ID)
					return err
				})
				if err != nil || size == recorded { // what arrives later has the measurement repeated
					break
				}
				err = retry.Paced(ctx, func() error {
					return q.db.Write(ctx, scope.Stack(u.OrgID, u.StackID).Remaining(), func(tx *store.Tx) error { return set(tx, u.ID, size) })
				})
				if err != nil {
					return err
				}
				recorded = size
			}
			switch {
			case err == nil:
			case ctx.Err() != nil:
				return err
			default:
				q.log.WithError(err).WithField("id", u.ID).Warn("measuring an update or a job failed; trying again with the next measurement")
				skipped[u.ID] = true
			}
		}
		if len(found) < limit {
			return nil
		}
	}
}

var (
	storedBytes = prometheus.NewDesc("workflow_server_organization_stored_bytes",
		"States, events, logs, policy packs and long texts that an organization stores.", []string{"organization"}, nil)
	quotaBytes = prometheus.NewDesc("workflow_server_organization_quota_bytes", "Limit for each organization; 0 means none.", nil, nil)
	ownQuota   = prometheus.NewDesc("workflow_server_organization_own_quota_bytes",
		"Limit of an organization with its own quota; 0 means none.", []string{"organization"}, nil)
)

// Describe implements [prometheus.Collector].
func (q *Quota) Describe(descs chan<- *prometheus.Desc) {
	descs <- storedBytes
	descs <- quotaBytes
	descs <- ownQuota
}

// collectTimeout bounds the time that a scrape waits for the database.
const collectTimeout = 5 * time.Second

// Collect implements [prometheus.Collector].
func (q *Quota) Collect(metrics chan<- prometheus.Metric) {
	metrics <- prometheus.MustNewConstMetric(quotaBytes, prometheus.GaugeValue, float64(q.limit))
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	all, err := store.Read(ctx, q.db, (*store.Tx).Storages)
	if err != nil {
		q.log.WithError(err).Warn("reading what organizations store, for /metrics, failed")
		return
	}
	for _, s := range all {
		metrics <- prometheus.MustNewConstMetric(storedBytes, prometheus.GaugeValue, float64(s.Bytes()), s.OrgName)
		if s.Quota != 0 {
			metrics <- prometheus.MustNewConstMetric(ownQuota, prometheus.GaugeValue, float64(q.Of(s.Quota)), s.OrgName)
		}
	}
}
