package identity

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRunnersRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r machines
		_, hash := NewToken()
		_, other := NewToken()
		r.add(hash, &Principal{Kind: KindRunner, JobID: "j"}, time.Now())
		if p, ok := r.get(hash); !ok || p.JobID != "j" {
			t.Errorf("the principal is %+v, %t", p, ok)
		}
		if _, ok := r.get(other); ok {
			t.Error("an unknown token has a principal")
		}
		time.Sleep(machineAge)
		if _, ok := r.get(hash); ok {
			t.Error("the principal is too old")
		}
		time.Sleep(time.Second)
		r.add(other, &Principal{Kind: KindRunner}, time.Now())
		if len(r.byHash) != 1 {
			t.Errorf("%d principals are remembered, want 1", len(r.byHash))
		}
	})
}
