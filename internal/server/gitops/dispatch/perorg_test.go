package dispatch

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"workflowagent/internal/server/due"
)

// TestPollsPerOrganization starts polls that do not end. Those of one organization, whatever the number
// of its integrations, leave room for others.
func TestPollsPerOrganization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		counts := map[string]*atomic.Int32{"busy": {}, "quiet": {}}
		loop := (&Service{opts: Options{Interval: time.Minute}}).polling()
		loop.Notices = nil
		loop.Check = func(context.Context, []string) (work []due.Work, err error) {
			add := func(org string, integrations, n int) {
				for i := range n {
					work = append(work, poll(org, fmt.Sprint(org, " integration ", i%integrations), fmt.Sprint(org, i), func(ctx context.Context) error {
						counts[org].Add(1)
						<-ctx.Done()
						return nil
					}))
				}
			}
			add("busy", 5, 2*maxPolls)
			add("quiet", 1, maxPolls)
			return work, nil
		}
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		synctest.Wait()
		if busy, quiet := counts["busy"].Load(), counts["quiet"].Load(); busy != pollsPerOrg || quiet != perForge {
			t.Errorf("%d polls of one organization run, want %d; and %d of one integration, want %d", busy, pollsPerOrg, quiet, perForge)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
