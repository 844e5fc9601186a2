package evaluator

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowProvidersMakeWay lets requests that open providers wait for them, while others wait for a place and while they do not.
func TestSlowProvidersMakeWay(t *testing.T) {
	for name, c := range map[string]struct {
		opens   bool
		starves time.Duration // when others begin to wait
		want    error
		after   time.Duration
	}{
		"no provider":          {false, time.Hour, errSlow, Static + grace},
		"alone":                {true, time.Hour, errSlow, WithProviders + grace},
		"others wait at once":  {true, 0, errContended, Static + grace},
		"others wait later on": {true, 20 * time.Second, errContended, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, ended := time.Now(), make(chan error, 1)
				request := &conversation{started: began, limit: WithProviders + grace, starved: func() bool { return time.Since(began) >= c.starves }}
				request.providers.Store(c.opens)
				ready := make(chan struct{})
				request.timer = time.AfterFunc(Static+grace, func() {
					<-ready
					request.expire(func(err error) { ended <- err })
				})
				close(ready)
				if err := <-ended; !errors.Is(err, c.want) || time.Since(began) != c.after {
					t.Errorf("the request ended with %v after %s", err, time.Since(began))
				}
			})
		})
	}
}
