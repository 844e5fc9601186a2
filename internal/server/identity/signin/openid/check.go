package openid

import (
	"context"
	"sync"

	"workflowagent/internal/server/outbound"
)

// Check fetches what providers publish about themselves, as a sign-in does. It returns for each provider why no user can
// sign in because of it, or nil.
func Check(ctx context.Context, providers []Config) []error {
	problems := make([]error, len(providers))
	var group sync.WaitGroup
	for i, c := range providers {
		group.Go(func() { problems[i] = c.check(ctx) })
	}
	group.Wait()
	return problems
}

func (c Config) check(ctx context.Context) error {
	client, err := outbound.Trusting(c.Authority)
	if err != nil {
		return err
	}
	_, err = (&provider{Config: c, client: client}).fetch(ctx)
	return err
}
