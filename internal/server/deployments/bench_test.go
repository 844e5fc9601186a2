package deployments_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

const benchPollers = 32

// BenchmarkClaim measures claims from a filled queue on SQLite with synchronous=FULL.
func BenchmarkClaim(b *testing.B) {
	p := newPlant(b, storetest.SQLite(b), deployments.Options{Cap: 1 << 40})
	var wg sync.WaitGroup
	var next atomic.Int64
	for range benchPollers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				p.deploy(p.stack(fmt.Sprint("s", i)))
			}
		})
	}
	wg.Wait()
	var claimed atomic.Int64
	b.ResetTimer()
	for i := range benchPollers {
		wg.Go(func() {
			for p.poll(fmt.Sprint("agent", i)) != nil {
				claimed.Add(1)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if claimed.Load() != int64(b.N) {
		b.Fatalf("%d jobs were claimed, want %d", claimed.Load(), b.N)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}

// BenchmarkBareStore measures the lower bound for BenchmarkClaim: the same number of writers, each
// changing one row per transaction.
func BenchmarkBareStore(b *testing.B) {
	db := storetest.SQLite(b)
	var wg sync.WaitGroup
	var next atomic.Int64
	b.ResetTimer()
	for i := range benchPollers {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				err := db.Write(b.Context(), scope.Server(), func(tx *store.Tx) error {
					return tx.SetInstallation(fmt.Sprint("row", i), fmt.Append(nil, n))
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
