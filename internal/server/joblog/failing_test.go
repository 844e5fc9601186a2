package joblog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/blob"
)

// failingDisk stores blobs as files. While failing, it loses what was never synced.
type failingDisk struct {
	*blob.Files
	dir     string
	failing bool
}

func (d *failingDisk) Sync(ctx context.Context, key string, safe int64) (int64, error) {
	if !d.failing {
		return d.Files.Sync(ctx, key, safe)
	}
	return 0, errors.Join(errors.New("input/output error"), os.Truncate(filepath.Join(d.dir, filepath.FromSlash(key)), safe))
}

// TestFailedSync checks that a sender repeats what a disk has lost, and nothing else, also if an earlier
// process of the server has stored some of it.
func TestFailedSync(t *testing.T) {
	const text = "durable, stored, lost"
	key := Key("j", 1, 0)
	for _, restarted := range []bool{false, true} {
		dir := t.TempDir()
		files, err := blob.NewFiles(dir)
		if err != nil {
			t.Fatal(err)
		}
		disk := &failingDisk{Files: files, dir: dir}
		log := logrus.New()
		log.SetOutput(io.Discard)
		l := New(disk, false, 1<<30, time.Hour, logrus.NewEntry(log))
		put := func(from, to int64) (protocol.LogAck, error) {
			return l.Put(t.Context(), key, from, []byte(text[from:to]))
		}
		kept := int64(len("durable"))
		_, err = put(0, kept)
		if err == nil {
			_, err = l.Sync(t.Context(), key)
		}
		if err == nil && restarted {
			l = New(disk, false, 1<<30, time.Hour, logrus.NewEntry(log))
		}
		if err == nil {
			_, err = put(kept, 16)
		}
		if err != nil {
			t.Fatal(err)
		}
		disk.failing = true
		l.flush(false)
		disk.failing = false
		ack, err := put(16, int64(len(text)))
		if !errors.Is(err, ErrGap) || ack.Received != kept || ack.Durable > kept {
			t.Fatalf("after a failed sync: %+v, %v; want a gap at %d", ack, err, kept)
		}
		if ack, err = put(kept, int64(len(text))); err != nil || ack.Received != int64(len(text)) {
			t.Fatalf("the repeated log: %+v, %v", ack, err)
		}
		sum := sha256.Sum256([]byte(text))
		job := store.Job{ID: "j", Epoch: 1, Steps: make([]store.StepState, 1)}
		complaints, err := l.Check(t.Context(), job, protocol.ResultRequest{Steps: []protocol.StepResult{
			{Step: 0, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:])},
		}})
		if err != nil || len(complaints) > 0 {
			t.Errorf("restarted %t: %v, %v", restarted, complaints, err)
		}
	}
}

// TestFailedSyncOfLines checks that lines whose sync failed are refused, so that their sender, which
// keeps no others, repeats them.
func TestFailedSyncOfLines(t *testing.T) {
	key := Key("j", 1, 1)
	dir := t.TempDir()
	files, err := blob.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	disk := &failingDisk{Files: files, dir: dir}
	l := New(disk, false, 1<<30, time.Hour, logrus.NewEntry(logrus.New()))
	put := func(offset int64, text string) error {
		return l.PutLines(t.Context(), key, protocol.LogLines{Offset: offset, Lines: []protocol.LogLine{{Line: text}}})
	}
	if err := put(0, "one"); err != nil {
		t.Fatal(err)
	}
	disk.failing = true
	if err := put(1, "two"); err == nil {
		t.Error("lines are accepted that the disk has lost")
	}
	disk.failing = false
	for range 2 {
		if err := put(1, "two"); err != nil {
			t.Fatal(err)
		}
	}
	lines, _, err := l.readLines(t.Context(), key, 0, &room{10, 1000})
	if err != nil || len(lines) != 2 || lines[0].Text != "one\n" || lines[1].Text != "two\n" {
		t.Errorf("the log is %q, %v", lines, err)
	}
}
