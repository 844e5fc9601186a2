package daemon

import (
	"context"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/agent"
	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/health"
	"workflowagent/internal/agent/pooltoken"
	"workflowagent/internal/protocol"
)

// newTokens returns the source of pool tokens, and a function that renews the token until its
// context is canceled.
func newTokens(c *config.Config, client *protocol.Client, watch health.Monitor, log *logrus.Entry) (agent.TokenSource, func(context.Context)) {
	if !c.UsesOIDC() {
		return pooltoken.Static(c.Token.Reveal()), func(context.Context) {}
	}
	source := pooltoken.NewOIDC(pooltoken.Options{
		Client:       client,
		File:         c.OIDCTokenFile,
		Organization: c.OrganizationName,
		PoolID:       c.RunnerPoolID,
		Life:         c.TokenExpiration,
		Problem:      watch.Token,
		Log:          log,
	})
	return source, source.Run
}
