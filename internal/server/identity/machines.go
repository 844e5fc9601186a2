package identity

import (
	"context"
	"time"

	"workflowagent/internal/server/recent"
)

// machineAge is the time for which the principal of a runner's token remains valid. Such a token
// cannot be revoked: it expires a day after its job's end, and each call also checks the job. The
// principal of a pool's token remains valid for as long, but only for calls that check the token
// again.
const machineAge = 20 * time.Second

// machines remembers the principals of runners, because each runner delivers log several times per
// second, and of pools, whose agents all poll with the same token. The keys are the hashes of the tokens.
type machines = recent.Map[*Principal]

// AuthenticatePoll is like [Service.Authenticate], but for the token of a pool, too, the answer can be up
// to machineAge old. The caller must check the token again with [CheckPoll]. Requests share the
// principal, so the caller must not change it.
func (s *Service) AuthenticatePoll(ctx context.Context, text string) (*Principal, error) {
	if p, ok := s.machines.Get(string(HashToken(text))); ok {
		return p, nil
	}
	return s.authenticate(ctx, text)
}
