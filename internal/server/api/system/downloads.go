package system

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity/attempts"
)

const (
	// maxDownloads bounds the number of concurrent downloads of releases, because updating agents
	// must not block deployments. A rejected agent retries.
	maxDownloads = 32
	// A new download can replace one that is slower than downloadRate after its grace period.
	downloadGrace = 10 * time.Second
	downloadRate  = 128 << 10 // bytes per second
)

// downloads is the set of active downloads. If maxDownloads are active, a new download can replace
// one of them, the victim.
type downloads struct {
	mu     sync.Mutex
	active map[*download]bool
}

type download struct {
	http.ResponseWriter
	from  string // the client's network
	began time.Time
	sent  atomic.Int64
	cut   atomic.Bool
}

var errGaveWay = errors.New("the download was replaced by another one")

// Write writes to the response. It fails if the download has been replaced.
func (d *download) Write(p []byte) (int, error) {
	if d.cut.Load() {
		return 0, errGaveWay
	}
	n, err := d.ResponseWriter.Write(p)
	d.sent.Add(int64(n))
	return n, err
}

// enter registers a download. It returns nil if too many are active. The caller must call leave
// when the download ends.
func (s *downloads) enter(w http.ResponseWriter, r *http.Request) *download {
	d := &download{ResponseWriter: w, from: attempts.Source(web.Address(r)), began: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.active) >= maxDownloads {
		v := s.victim(d)
		if v == nil {
			return nil
		}
		delete(s.active, v)
		v.cut.Store(true)
		// This interrupts a write that is waiting for its client. A write that begins now ends at
		// its own deadline.
		_ = http.NewResponseController(v.ResponseWriter).SetWriteDeadline(time.Now())
	}
	s.active[d] = true
	return d
}

func (s *downloads) leave(d *download) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, d)
}

// victim returns the download that a newcomer can replace, or nil. The first choice is the slowest
// download of the address with the most downloads, if the newcomer's address would still have
// fewer. The second choice is the slowest of all downloads, if it is slower than downloadRate. If
// all clients are behind one proxy, only the second rule applies.
func (s *downloads) victim(newcomer *download) *download {
	count := map[string]int{}
	for d := range s.active {
		count[d.from]++
	}
	var greedy, slow *download
	for d := range s.active {
		if count[d.from] > count[newcomer.from]+1 &&
			(greedy == nil || count[d.from] > count[greedy.from] || d.from == greedy.from && d.rate(newcomer.began) < greedy.rate(newcomer.began)) {
			greedy = d
		}
		late := newcomer.began.Sub(d.began) > downloadGrace && d.rate(newcomer.began) < downloadRate
		if late && (slow == nil || d.rate(newcomer.began) < slow.rate(newcomer.began)) {
			slow = d
		}
	}
	if greedy != nil {
		return greedy
	}
	return slow
}

func (d *download) rate(now time.Time) float64 {
	return float64(d.sent.Load()) / max(now.Sub(d.began).Seconds(), 0.001)
}
