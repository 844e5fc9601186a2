package deployments

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
	"workflowagent/internal/server/store"
)

const (
	// syncEarly is how much log may be only in memory before it is put on disk
	// without waiting for the timer.
	syncEarly = 1 << 20
	// syncTimeout bounds putting one stream on disk.
	syncTimeout = 30 * time.Second
	// idleStream is when what is known of a stream is forgotten.
	idleStream = 10 * time.Minute
)

// logKey names the stream of a step. Each claim of a job has its own streams,
// so that a superseded agent cannot write into those of its successor.
func logKey(jobID string, epoch int64, step int) string {
	return fmt.Sprintf("logs/%s/%d/%d", jobID, epoch, step)
}

// logStore keeps the streams of log. It puts them on disk in groups, beside
// the requests that bring them.
type logStore struct {
	blobs   store.Blobs
	instant bool // appended is durable
	limit   int64
	every   time.Duration
	log     *logrus.Entry

	mu      sync.Mutex
	streams map[string]*logStream
	dirty   map[string]bool

	kick chan struct{} // something is dirty; capacity 1
	now  chan struct{} // much is dirty; capacity 1
}

// logStream is what is known of a stream.
type logStream struct {
	mu      sync.Mutex // orders writers
	size    int64
	durable int64
	used    time.Time
	lines   lineIndex
}

func newLogStore(blobs store.Blobs, instant bool, limit int64, every time.Duration, log *logrus.Entry) *logStore {
	return &logStore{
		blobs: blobs, instant: instant, limit: limit, every: every, log: log,
		streams: map[string]*logStream{}, dirty: map[string]bool{},
		kick: make(chan struct{}, 1), now: make(chan struct{}, 1),
	}
}

func (l *logStore) stream(key string) *logStream {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.streams[key]
	if st == nil {
		st = &logStream{}
		l.streams[key] = st
	}
	st.used = time.Now()
	return st
}

// errGap says that bytes before the offset are missing.
var errGap = errors.New("log is missing before this offset")

// put stores p at an offset of a stream. The answer says where to go on, also
// with errGap. An empty p asks only for that, and puts the stream on disk.
func (l *logStore) put(ctx context.Context, key string, offset int64, p []byte) (protocol.LogAck, error) {
	if len(p) == 0 {
		size, err := l.sync(ctx, key)
		if err == nil && offset > size {
			err = errGap
		}
		return protocol.LogAck{Received: size, Durable: size, Limit: l.limit}, err
	}
	st := l.stream(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	return l.append(ctx, key, st, offset, p)
}

// append is put for a caller that holds the stream.
func (l *logStore) append(ctx context.Context, key string, st *logStream, offset int64, p []byte) (protocol.LogAck, error) {
	if offset+int64(len(p)) > l.limit {
		p = p[:max(0, min(int64(len(p)), l.limit-offset))]
	}
	size, err := l.blobs.Append(ctx, key, offset, p)
	if errors.Is(err, store.ErrBlobGap) {
		err = errGap
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

// mark notes that a stream has bytes that are not on disk.
func (l *logStore) mark(key string, urgent bool) {
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

// sync puts a stream on disk and returns its size.
func (l *logStore) sync(ctx context.Context, key string) (int64, error) {
	durable, err := l.blobs.Sync(ctx, key)
	if err != nil {
		return 0, err
	}
	st := l.stream(key)
	st.mu.Lock()
	defer st.mu.Unlock()
	st.size, st.durable = max(st.size, durable), max(st.durable, durable)
	return durable, nil
}

// run puts dirty streams on disk until ctx ends, and then once more.
func (l *logStore) run(ctx context.Context) {
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

func (l *logStore) flush() {
	l.mu.Lock()
	keys := slices.Collect(maps.Keys(l.dirty))
	clear(l.dirty)
	l.mu.Unlock()
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(context.Background(), syncTimeout)
		_, err := l.sync(ctx, key)
		cancel()
		if err != nil {
			// The senders keep what is not durable, so nothing is lost yet.
			l.log.WithError(err).WithField("stream", key).Error("could not put log on disk")
			l.mu.Lock()
			l.dirty[key] = true
			l.mu.Unlock()
		}
	}
}

// tidy forgets streams that nobody has used for a while.
func (l *logStore) tidy() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, st := range l.streams {
		if time.Since(st.used) > idleStream && !l.dirty[key] {
			delete(l.streams, key)
		}
	}
}
