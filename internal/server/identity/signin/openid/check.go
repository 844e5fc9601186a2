package openid

import (
	"context"

	"workflowagent/internal/server/outbound"
)

// Check fetches what the provider publishes about itself, as a sign-in does, and returns an error if no user can sign in
// because of it.
func (c Config) Check(ctx context.Context) error {
	client, err := outbound.Trusting(c.Authority)
	if err != nil {
		return err
	}
	_, err = (&provider{Config: c, client: client}).fetch(ctx)
	return err
}
