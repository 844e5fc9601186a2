// Package joblog stores job logs as one stream per step and claim, and returns the logs to clients
// as lines.
package joblog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/recent"
	"workflowagent/internal/server/store/blob"
)

const (
	// syncEarly is the number of bytes of a stream in memory that trigger its sync before the timer.
	syncEarly   = 4 << 20
	syncTimeout = 30 * time.Second
	// After a sync of all dirty streams, the next one waits for syncPause times its duration, but at
	// most for maxPause. With many streams, syncs would otherwise take much of the CPU time.
	syncPause = 20
	maxPause  = 5 * time.Second
	// idleStream is the time for which the in-memory state of an unused stream is kept.
	idleStream = 10 * time.Minute
)

// Key returns the key of a step's stream. Each claim has its own streams, so a superseded agent
// cannot write to its successor's streams.
func Key(jobID string, epoch int64, step int) string {
	return fmt.Sprintf("%s/%d", Claim(jobID, epoch), step)
}

// Claim returns the key prefix of the streams of a job's claim.
func Claim(jobID string, epoch int64) string { return fmt.Sprintf("%s/%d", Blobs(jobID), epoch) }

// Blobs returns the key prefix of a job's streams.
func Blobs(jobID string) string { return "logs/" + jobID }

// foundKept is how long a server remembers what it has found in a stream, for the next requests of the
// same reader.
const foundKept = 5 * time.Minute

// Store stores log streams. It syncs them to disk in groups, in the background.
type Store struct {
	blobs   blob.Store
	instant bool // appends are durable immediately
	limit   int64
	every   time.Duration
	log     *logrus.Entry

	mu      sync.Mutex
	streams map[string]*stream
	dirty   map[string]bool // true: has syncEarly bytes in memory
	indexes recent.Map[*lineIndex]
	finds   chan struct{} // one element for each running search
	firsts  recent.Map[firstError]

	kick chan struct{} // signals that a stream is dirty; capacity 1
	now  chan struct{} // signals that syncEarly bytes are dirty; capacity 1
}

type stream struct {
	mu      sync.Mutex // serializes writers
	size    int64
	durable int64 // as far as known
	safe    int64 // bytes that were synced, or stored before this process; -1: not known yet
	used    time.Time
	hash    prefixHash
}

// New returns a store that keeps its streams in blobs. If instant is set, appends are durable
// immediately. Otherwise, [Store.Run] syncs the streams at the interval every, or less often if syncs
// take long. limit is the maximum size of a stream in bytes.
func New(blobs blob.Store, instant bool, limit int64, every time.Duration, log *logrus.Entry) *Store {
	return &Store{
		blobs: blobs, instant: instant, limit: limit, every: every, log: log,
		streams: map[string]*stream{}, dirty: map[string]bool{},
		indexes: recent.Map[*lineIndex]{Age: foundKept}, firsts: recent.Map[firstError]{Age: foundKept},
		finds: make(chan struct{}, maxFinds), kick: make(chan struct{}, 1), now: make(chan struct{}, 1),
	}
}

func (l *Store) open(key string) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.streams[key]
	if st == nil {
		st = &stream{safe: -1}
		l.streams[key] = st
	}
	st.used = time.Now()
	return st
}

// ErrGap reports that a stream lacks the log before an offset.
var ErrGap = errors.New("log is missing before this offset")

// Put stores p at an offset of a stream. It returns the next offset, even with [ErrGap]. If p is
// empty, Put syncs the stream to disk and returns the next offset.
func (l *Store) Put(ctx context.Context, key string, offset int64, p []byte) (protocol.LogAck, error) {
	if len(p) == 0 {
		size, err := l.Sync(ctx, key)
		if err == nil && offset > size {
			err = ErrGap
		}
		return protocol.LogAck{Received: size, Durable: size, Limit: l.limit}, err
	}
	st := l.open(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	return l.append(ctx, key, st, offset, p)
}

func (l *Store) append(ctx context.Context, key string, st *stream, offset int64, p []byte) (protocol.LogAck, error) {
	if offset+int64(len(p)) > l.limit {
		p = p[:max(0, min(int64(len(p)), l.limit-offset))]
	}
	size, added, err := l.blobs.Append(ctx, key, offset, p)
	if err == nil {
		st.hash.add(p[len(p)-int(added):], size)
	}
	if errors.Is(err, blob.ErrGap) {
		err = ErrGap
	} else if err != nil {
		return protocol.LogAck{}, err
	}
	st.size = size
	if st.safe < 0 {
		st.safe = size - added
	}
	if l.instant {
		st.durable = size
	} else if st.size > st.durable {
		l.mark(key, st.size-st.durable >= syncEarly)
	}
	return protocol.LogAck{Received: size, Durable: st.durable, Limit: l.limit}, err
}

func (l *Store) mark(key string, urgent bool) {
	l.mu.Lock()
	l.dirty[key] = l.dirty[key] || urgent
	l.mu.Unlock()
	poke := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	poke(l.kick)
	if urgent {
		poke(l.now)
	}
}

// Sync writes a stream to disk and returns its size. If the disk fails, the stream loses what was
// never durable. Its sender still has that log, and sends it again.
func (l *Store) Sync(ctx context.Context, key string) (int64, error) {
	st := l.open(key)
	safe, err := l.safe(ctx, key, st)
	if err != nil {
		return 0, err
	}
	durable, err := l.blobs.Sync(ctx, key, safe)
	if err != nil {
		l.indexes.Forget(key)
		return 0, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.size, st.durable, st.safe = max(st.size, durable), max(st.durable, durable), max(st.safe, durable)
	return durable, nil
}

// safe returns the number of bytes of a stream that a failing disk cannot lose.
func (l *Store) safe(ctx context.Context, key string, st *stream) (int64, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.safe < 0 {
		size, err := l.blobs.Size(ctx, key)
		if err != nil {
			return 0, err
		}
		st.safe = size
	}
	return st.safe, nil
}

// Run syncs dirty streams to disk until ctx is canceled, and then once more.
func (l *Store) Run(ctx context.Context) {
	defer l.flush(false)
	for pause := l.every; ; {
		select {
		case <-l.kick:
		case <-ctx.Done():
			return
		}
		if !l.wait(ctx, pause) {
			return
		}
		began := time.Now()
		l.flush(false)
		pause = max(l.every, min(syncPause*time.Since(began), maxPause))
	}
}

// wait waits for a pause, in which it syncs only streams that have many bytes in memory. It returns
// false if ctx is canceled.
func (l *Store) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-l.now:
			l.flush(true)
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// flush syncs the dirty streams, or only those with many bytes in memory.
func (l *Store) flush(urgent bool) {
	var keys []string
	l.mu.Lock()
	for key, many := range l.dirty {
		if many || !urgent {
			keys = append(keys, key)
			delete(l.dirty, key)
		}
	}
	l.mu.Unlock()
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
		_, err := l.Sync(ctx, key)
		cancel()
		if err != nil {
			// Senders keep their log until it is durable, so no log has been lost.
			l.log.WithError(err).WithField("stream", key).Error("syncing log to disk failed; its sender repeats it")
			l.mark(key, false)
		}
	}
}

// Tidy removes the in-memory state of idle streams.
func (l *Store) Tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, st := range l.streams {
		if _, dirty := l.dirty[key]; !dirty && time.Since(st.used) > idleStream {
			delete(l.streams, key)
		}
	}
}
