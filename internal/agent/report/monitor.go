package report

import (
	"time"

	"workflowagent/internal/agent/health"
	"workflowagent/internal/workflow"
)

// Monitor reports the agent's activity to health and metrics.
type Monitor struct {
	Tracker *health.Tracker
	Metrics *health.Metrics
}

// Activity records a sign of progress.
func (m Monitor) Activity() { m.Tracker.Touch() }

// EngineState reports why no jobs can run.
func (m Monitor) EngineState(err error) { m.problem("engine", err) }

// Polled reports why the server hands out no jobs.
func (m Monitor) Polled(err error) {
	if err != nil {
		m.Metrics.PollFailed()
	}
	m.problem("server", err)
}

// Token reports why the pool has no fresh token.
func (m Monitor) Token(err error) { m.problem("token", err) }

// JobStarted counts a job.
func (m Monitor) JobStarted() { m.Metrics.JobStarted() }

// JobLaunched records the time a job took to start.
func (m Monitor) JobLaunched(took time.Duration) { m.Metrics.JobLaunched(took) }

// JobEnded counts the end of a job. Lost jobs count apart from failed ones.
func (m Monitor) JobEnded(status string, reason workflow.Reason, took time.Duration) {
	if reason == workflow.ReasonLost {
		status = string(workflow.ReasonLost)
	}
	m.Metrics.JobFinished(status, took)
}

func (m Monitor) problem(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	m.Tracker.SetProblem(name, text)
}
