package health

// Monitor records the agent's events in its tracker and its metrics.
type Monitor struct {
	*Tracker
	*Metrics
}

// EngineState records why no jobs can run. A nil error means that jobs can run.
func (m Monitor) EngineState(err error) { m.SetProblem("engine", err) }

// Polled records the outcome of a poll.
func (m Monitor) Polled(err error) {
	if err != nil {
		m.pollErrors.Inc()
	}
	m.SetProblem("server", err)
}

// Token records why no fresh pool token is available. A nil error means that one is available.
func (m Monitor) Token(err error) { m.SetProblem("token", err) }
