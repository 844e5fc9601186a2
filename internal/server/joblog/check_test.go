package joblog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
)

type countingReads struct {
	blob.Store
	bytes atomic.Int64
}

func (c *countingReads) ReadAt(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	n, err := c.Store.ReadAt(ctx, key, offset, p)
	c.bytes.Add(int64(n))
	return n, err
}

// TestCheckHash compares a stream with its checksum, after one or two servers have stored it.
func TestCheckHash(t *testing.T) {
	type put struct {
		server int
		offset int64
		text   string
	}
	for _, tt := range []struct {
		name  string
		puts  []put
		sent  string // what the sender reports
		same  bool
		reads int64 // bytes that the check reads
	}{
		{"in order", []put{{0, 0, "abc"}, {0, 3, "def"}}, "abcdef", true, 0},
		{"repeated and overlapping", []put{{0, 0, "abc"}, {0, 0, "abc"}, {0, 1, "bcdef"}, {0, 2, "cd"}}, "abcdef", true, 0},
		{"after a gap", []put{{0, 0, "abc"}, {0, 5, "f"}, {0, 3, "def"}}, "abcdef", true, 0},
		{"other bytes at the same place", []put{{0, 0, "abc"}, {0, 1, "XXdef"}}, "abcdef", true, 0},
		{"other bytes stored first", []put{{0, 0, "aXX"}, {0, 1, "bcdef"}}, "abcdef", false, 0},
		{"a beginning on another server", []put{{1, 0, "abc"}, {0, 3, "def"}}, "abcdef", true, 6},
		{"a part on another server", []put{{0, 0, "ab"}, {1, 2, "cd"}, {0, 4, "ef"}}, "abcdef", true, 4},
		{"other bytes of another server", []put{{0, 0, "ab"}, {1, 2, "XX"}, {0, 2, "cdef"}}, "abcdef", false, 4},
		{"an end on another server", []put{{0, 0, "abcd"}, {1, 4, "ef"}}, "abcdef", true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files, err := blob.NewFiles(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			log := logrus.New()
			log.SetOutput(io.Discard)
			counting := &countingReads{Store: files}
			var servers [2]*Store
			for i := range servers {
				servers[i] = New(counting, false, 1<<20, time.Second, logrus.NewEntry(log))
			}
			job := store.Job{ID: "j", Epoch: 1, Steps: make([]store.StepState, 1)}
			for _, p := range tt.puts {
				_, err := servers[p.server].Put(t.Context(), Key(job.ID, job.Epoch, 0), p.offset, []byte(p.text))
				if err != nil && p.offset != 5 {
					t.Fatal(err)
				}
			}
			sum := sha256.Sum256([]byte(tt.sent))
			report := protocol.ResultRequest{Steps: []protocol.StepResult{{Bytes: int64(len(tt.sent)), SHA256: hex.EncodeToString(sum[:])}}}
			for range 2 { // senders repeat results
				counting.bytes.Store(0)
				complaints, err := servers[0].Check(t.Context(), job, report)
				if err != nil || (len(complaints) == 0) != tt.same {
					t.Errorf("complaints %q, %v; want some: %t", complaints, err, !tt.same)
				}
				if n := counting.bytes.Load(); n != tt.reads {
					t.Errorf("the check read %d bytes, want %d", n, tt.reads)
				}
			}
		})
	}
}

// TestCheckHashAfterRemoval stores a stream again whose blob was removed.
func TestCheckHashAfterRemoval(t *testing.T) {
	files, err := blob.NewFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l := New(files, true, 1<<20, time.Second, logrus.NewEntry(logrus.New()))
	job := store.Job{ID: "j", Epoch: 1, Steps: make([]store.StepState, 1)}
	key := Key(job.ID, job.Epoch, 0)
	put := func(offset int64, text string) {
		t.Helper()
		if _, err := l.Put(t.Context(), key, offset, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put(0, "old log")
	if err := files.Delete(t.Context(), Blobs(job.ID)); err != nil {
		t.Fatal(err)
	}
	put(0, "new")
	put(3, " log")
	put(7, "!")
	sum := sha256.Sum256([]byte("new log!"))
	complaints, err := l.Check(t.Context(), job, protocol.ResultRequest{Steps: []protocol.StepResult{{Bytes: 8, SHA256: hex.EncodeToString(sum[:])}}})
	if err != nil || len(complaints) > 0 {
		t.Errorf("complaints %q, %v; want none", complaints, err)
	}
}
