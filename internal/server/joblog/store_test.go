package joblog

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/store/blob"
)

// slowDisk is a store of lengths of blobs, whose syncs take a fixed time.
type slowDisk struct {
	blob.Store
	takes time.Duration

	mu    sync.Mutex
	sizes map[string]int64
	began map[string][]time.Time // syncs by key
}

func (d *slowDisk) Append(_ context.Context, key string, offset int64, p []byte) (size, added int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	added = max(0, offset+int64(len(p))-d.sizes[key])
	d.sizes[key] += added
	return d.sizes[key], added, nil
}

func (d *slowDisk) Sync(_ context.Context, key string, _ int64) (int64, error) {
	d.mu.Lock()
	d.began[key] = append(d.began[key], time.Now())
	size := d.sizes[key]
	d.mu.Unlock()
	time.Sleep(d.takes)
	return size, nil
}

// TestSyncInterval checks the time between syncs of a stream that receives log every 50 ms, among
// streams that receive as much.
func TestSyncInterval(t *testing.T) {
	const every = 200 * time.Millisecond
	for _, tt := range []struct {
		name     string
		streams  int
		takes    time.Duration // one sync
		size     int           // of an append
		min, max time.Duration
	}{
		{"one stream", 1, time.Millisecond, 10, every, every + 60*time.Millisecond},
		{"many streams", 20, 2 * time.Millisecond, 10, 800 * time.Millisecond, 940 * time.Millisecond},
		{"very many streams", 200, 2 * time.Millisecond, 10, maxPause, maxPause + time.Second},
		{"much log", 1, time.Millisecond, syncEarly / 2, 50 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := logrus.New()
				log.SetOutput(io.Discard)
				disk := &slowDisk{takes: tt.takes, sizes: map[string]int64{}, began: map[string][]time.Time{}}
				l := New(disk, false, 1<<30, every, logrus.NewEntry(log))
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				wg.Go(func() { l.Run(ctx) })
				text := make([]byte, tt.size)
				var offset int64
				for range 300 {
					for i := range tt.streams {
						if _, err := l.Put(ctx, fmt.Sprint(i), offset, text); err != nil {
							t.Fatal(err)
						}
					}
					offset += int64(tt.size)
					time.Sleep(50 * time.Millisecond)
				}
				cancel()
				wg.Wait()
				synced := disk.began["0"]
				synced = synced[:len(synced)-1] // the last one is caused by the end
				if len(synced) < 3 {
					t.Fatalf("%d syncs in 15 s", len(synced))
				}
				for i := 2; i < len(synced); i++ { // the first pause is the shortest
					if pause := synced[i].Sub(synced[i-1]); pause < tt.min || pause > tt.max {
						t.Errorf("sync %d began %v after the one before, want %v to %v", i, pause, tt.min, tt.max)
					}
				}
				ack, err := l.Put(t.Context(), "0", offset-1, text[:1])
				if err != nil || ack.Durable != offset {
					t.Errorf("%d bytes of %d are durable after the end: %v", ack.Durable, offset, err)
				}
			})
		})
	}
}
