// Package joblog stores job logs as one stream per step and claim, and returns the logs to clients
// as lines.
package joblog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store/blob"
)

const (
	// syncEarly is the number of bytes in memory that trigger a sync before the timer.
	syncEarly   = 1 << 20
	syncTimeout = 30 * time.Second
	// idleStream is the time for which the in-memory state of an unused stream is kept.
	idleStream = 10 * time.Minute
)

// Key returns the key of a step's stream. Each claim has its own streams, so a superseded agent
// cannot write to its successor's streams.
func Key(jobID string, epoch int64, step int) string {
	return fmt.Sprintf("%s/%d/%d", Blobs(jobID), epoch, step)
}

// Blobs returns the key prefix of a job's streams.
func Blobs(jobID string) string { return "logs/" + jobID }

// Store stores log streams. It syncs them to disk in groups, in the background.
type Store struct {
	blobs   blob.Store
	instant bool // appends are durable immediately
	limit   int64
	every   time.Duration
	log     *logrus.Entry

	mu      sync.Mutex
	streams map[string]*stream
	dirty   map[string]bool
	indexes indexes
	finds   chan struct{} // one element for each running search
	firsts  firstErrors

	kick chan struct{} // signals that a stream is dirty; capacity 1
	now  chan struct{} // signals that syncEarly bytes are dirty; capacity 1
}

type stream struct {
	mu      sync.Mutex // serializes writers
	size    int64
	durable int64
	used    time.Time
	hash    prefixHash
}

// New returns a store that keeps its streams in blobs. If instant is set, appends are durable
// immediately. Otherwise, [Store.Run] syncs the streams at the interval every. limit is the maximum
// size of a stream in bytes.
func New(blobs blob.Store, instant bool, limit int64, every time.Duration, log *logrus.Entry) *Store {
	return &Store{
		blobs: blobs, instant: instant, limit: limit, every: every, log: log,
		streams: map[string]*stream{}, dirty: map[string]bool{},
		finds: make(chan struct{}, maxFinds), kick: make(chan struct{}, 1), now: make(chan struct{}, 1),
	}
}

func (l *Store) open(key string) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.streams[key]
	if st == nil {
		st = &stream{}
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
	st.size = max(st.size, size)
	if l.instant {
		st.durable = size
	} else if st.size > st.durable {
		l.mark(key, st.size-st.durable >= syncEarly)
	}
	return protocol.LogAck{Received: size, Durable: st.durable, Limit: l.limit}, err
}

func (l *Store) mark(key string, urgent bool) {
	l.mu.Lock()
	l.dirty[key] = true
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

// Sync writes a stream to disk and returns its size.
func (l *Store) Sync(ctx context.Context, key string) (int64, error) {
	durable, err := l.blobs.Sync(ctx, key)
	if err != nil {
		return 0, err
	}
	st := l.open(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.size, st.durable = max(st.size, durable), max(st.durable, durable)
	return durable, nil
}

// Run syncs dirty streams to disk until ctx is canceled, and then once more.
func (l *Store) Run(ctx context.Context) {
	defer l.flush()
	for {
		select {
		case <-l.kick:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(l.every)
		select {
		case <-timer.C:
		case <-l.now:
		case <-ctx.Done():
		}
		timer.Stop()
		l.flush()
	}
}

func (l *Store) flush() {
	l.mu.Lock()
	keys := slices.Collect(maps.Keys(l.dirty))
	clear(l.dirty)
	l.mu.Unlock()
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
		_, err := l.Sync(ctx, key)
		cancel()
		if err != nil {
			// Senders keep their log until it is durable, so no log has been lost.
			l.log.WithError(err).WithField("stream", key).Error("syncing log to disk failed; retrying")
			l.mu.Lock()
			l.dirty[key] = true
			l.mu.Unlock()
		}
	}
}

// Tidy removes the in-memory state of idle streams.
func (l *Store) Tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, st := range l.streams {
		if time.Since(st.used) > idleStream && !l.dirty[key] {
			delete(l.streams, key)
		}
	}
}
