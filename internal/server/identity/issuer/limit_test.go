package issuer

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestLimit lets one job request 1000 tokens per second for 10 minutes, while another job requests
// one per minute.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, Options{})
		greedy := 0
		for i := range 600_000 {
			err := s.Admit("greedy")
			if err == nil {
				greedy++
			} else if limited, ok := errors.AsType[*LimitError](err); !ok || limited.Wait <= 0 || limited.Wait > time.Minute {
				t.Fatalf("got %v", err)
			}
			if i%60_000 == 0 {
				if err := s.Admit("modest"); err != nil {
					t.Fatal(err)
				}
			}
			if i%1000 == 999 {
				<-time.After(time.Second)
			}
		}
		if greedy != 10*perMinute {
			t.Errorf("the job obtained %d tokens", greedy)
		}
		for i := range 1000 {
			if err := s.Admit(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(minute)
		if err := s.Admit("last"); err != nil || len(s.limit.of) != 1 {
			t.Errorf("%d jobs are remembered, %v", len(s.limit.of), err)
		}
	})
}
