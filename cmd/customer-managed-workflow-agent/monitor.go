package main

import (
	"time"

	"workflowagent/internal/agent/health"
	"workflowagent/internal/workflow"
)

// monitor reports the agent's activity to health and metrics.
type monitor struct {
	tracker *health.Tracker
	metrics *health.Metrics
}

// Activity is a sign of progress.
func (m monitor) Activity() { m.tracker.Touch() }

// EngineState shows why no jobs can run.
func (m monitor) EngineState(err error) { m.problem("engine", err) }

// Polled shows why the server hands out no work.
func (m monitor) Polled(err error) {
	if err != nil {
		m.metrics.PollFailed()
	}
	m.problem("server", err)
}

// Token shows why there is no fresh token of the pool.
func (m monitor) Token(err error) { m.problem("token", err) }

// JobStarted counts a job.
func (m monitor) JobStarted() { m.metrics.JobStarted() }

// JobLaunched counts how long a job took to start.
func (m monitor) JobLaunched(took time.Duration) { m.metrics.JobLaunched(took) }

// JobEnded counts the end of a job. Lost jobs are counted apart from failed ones.
func (m monitor) JobEnded(status string, reason workflow.Reason, took time.Duration) {
	if reason == workflow.ReasonLost {
		status = string(workflow.ReasonLost)
	}
	m.metrics.JobFinished(status, took)
}

func (m monitor) problem(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	m.tracker.SetProblem(name, text)
}
