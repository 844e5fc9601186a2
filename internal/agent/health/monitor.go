package health

// Monitor records the agent's events in its health and its metrics.
type Monitor struct {
	*Tracker
	*Metrics
}

// EngineState records why no jobs can run; nil means that they can.
func (m Monitor) EngineState(err error) { m.SetProblem("engine", err) }

// Polled records the outcome of a poll.
func (m Monitor) Polled(err error) {
	if err != nil {
		m.PollFailed()
	}
	m.SetProblem("server", err)
}

// Token records why the pool has no fresh token; nil means that it has one.
func (m Monitor) Token(err error) { m.SetProblem("token", err) }
