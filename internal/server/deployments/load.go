package deployments

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"workflowagent/internal/server/pools"
	"workflowagent/internal/server/store"
	"workflowagent/internal/workflow"
)

// Load describes how busy a pool is, for autoscalers.
type Load struct {
	Queued     int64         // waiting deployments, and claimable policy evaluations, at most countedJobs of each
	Claimable  int64         // those that an agent could claim now
	OldestWait time.Duration // of the claimable ones
	Running    int64         // claimed and running jobs
	Agents     int64         // connected agents
	BusySlots  int64         // slots of connected agents that run a job
	IdleSlots  int64         // slots of connected agents that can take a job
}

const (
	// countedJobs bounds the queued jobs that a load takes into account, and so its cost.
	countedJobs = 5000
	// loadAge is the maximum age of an answer, which bounds the cost of many requests.
	loadAge = time.Second
	// loadKept is the time for which concurrent requests share one read, which must end before.
	loadKept = time.Minute
	// maxPools bounds the pools in the metrics, because each is several series.
	maxPools = 1000
)

// knownLoad is locked while it is being read, so that concurrent requests share one read.
type knownLoad struct {
	mu sync.Mutex
	at time.Time
	Load
}

// PoolLoad returns a pool's load, which can be up to a second old. If types are given, only jobs of these types count
// as waiting: those of others wait for other agents.
func (s *Service) PoolLoad(ctx context.Context, orgID, poolID string, types ...workflow.Type) (Load, error) {
	counts := func(t workflow.Type) bool { return len(types) == 0 || slices.Contains(types, t) }
	key := fmt.Sprintf("%s %t %t", poolID, counts(workflow.TypeDeployment), counts(workflow.TypePolicyEvaluation))
	k := s.loads.GetOr(key, func() *knownLoad { return &knownLoad{} })
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.at) < loadAge {
		return k.Load, nil
	}
	l, err := store.Read(ctx, s.db, func(tx *store.Tx) (Load, error) { return s.readLoad(tx, orgID, poolID, counts) })
	if err != nil {
		return Load{}, fmt.Errorf("reading the load of an agent pool: %w", err)
	}
	k.Load, k.at = l, time.Now()
	return l, nil
}

func (s *Service) readLoad(tx *store.Tx, orgID, poolID string, counts func(workflow.Type) bool) (l Load, err error) {
	var queue store.QueueLoad
	if counts(workflow.TypeDeployment) {
		if queue, err = tx.QueueLoad(poolID, countedJobs); err != nil {
			return l, err
		}
	}
	if s.opts.Evaluations != nil && counts(workflow.TypePolicyEvaluation) {
		waiting, err := s.opts.Evaluations.Load(tx, orgID, poolID, countedJobs)
		if err != nil {
			return l, err
		}
		queue.Queued += waiting.Queued
		queue.Claimable += waiting.Claimable
		if queue.Oldest.IsZero() || waiting.Claimable > 0 && waiting.Oldest.Before(queue.Oldest) {
			queue.Oldest = waiting.Oldest
		}
	}
	running, err := tx.CountActiveJobsByAgent(store.AgentPool{ID: poolID, OrgID: orgID})
	if err != nil {
		return l, err
	}
	active, quota, err := tx.CountActiveJobs(orgID)
	if err != nil {
		return l, err
	}
	agents, err := tx.Agents(poolID)
	if err != nil {
		return l, err
	}
	now := tx.Now()
	l.Queued = queue.Queued
	l.Claimable = min(queue.Claimable, max(0, s.cap(quota)-active))
	if l.Claimable > 0 {
		l.OldestWait = max(0, now.Sub(queue.Oldest))
	}
	for _, n := range running {
		l.Running += n
	}
	for _, a := range agents {
		if pools.Online(a, now) {
			l.Agents++
			l.BusySlots += running[a.AgentID]
			l.IdleSlots += max(0, a.Slots-running[a.AgentID])
		}
	}
	return l, nil
}

// LoadMetrics collects the loads of all pools for Prometheus.
type LoadMetrics struct{ service *Service }

// LoadMetrics returns a collector of the loads of all pools.
func (s *Service) LoadMetrics() LoadMetrics { return LoadMetrics{s} }

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("workflow_server_pool_"+name, help, []string{"organization", "pool", "pool_id"}, nil)
}

var loadMetrics = []struct {
	desc  *prometheus.Desc
	value func(Load) float64
}{
	{poolDesc("queued", "Deployments that wait for the pool, and claimable policy evaluations, at most 5000 of each."), func(l Load) float64 { return float64(l.Queued) }},
	{poolDesc("claimable", "Waiting jobs that an agent of the pool could claim now."), func(l Load) float64 { return float64(l.Claimable) }},
	{poolDesc("oldest_wait_seconds", "Wait of the oldest claimable job."), func(l Load) float64 { return l.OldestWait.Seconds() }},
	{poolDesc("running", "Claimed and running jobs of the pool."), func(l Load) float64 { return float64(l.Running) }},
	{poolDesc("busy_slots", "Slots of connected agents that run a job."), func(l Load) float64 { return float64(l.BusySlots) }},
	{poolDesc("idle_slots", "Slots of connected agents that can take a job."), func(l Load) float64 { return float64(l.IdleSlots) }},
	{poolDesc("agents", "Connected agents of the pool."), func(l Load) float64 { return float64(l.Agents) }},
}

// Describe implements [prometheus.Collector].
func (m LoadMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, metric := range loadMetrics {
		descs <- metric.desc
	}
}

// collectTimeout bounds the time that a scrape waits for the database.
const collectTimeout = 5 * time.Second

// Collect implements [prometheus.Collector].
func (m LoadMetrics) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	s := m.service
	list, err := store.Read(ctx, s.db, func(tx *store.Tx) ([]store.NamedPool, error) { return tx.AllPools(maxPools) })
	if err != nil {
		s.log.WithError(err).Warn("reading the agent pools, for /metrics, failed")
		return
	}
	for _, pool := range list {
		l, err := s.PoolLoad(ctx, pool.OrgID, pool.ID)
		if err != nil {
			s.log.WithError(err).WithField("pool", pool.ID).Warn("reading the load of an agent pool, for /metrics, failed")
			return
		}
		for _, metric := range loadMetrics {
			metrics <- prometheus.MustNewConstMetric(metric.desc, prometheus.GaugeValue, metric.value(l), pool.OrgName, pool.Name, pool.ID)
		}
	}
}
