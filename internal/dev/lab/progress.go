package lab

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	progressInterval = time.Minute
	tailLines        = 15
)

type buildWatch struct {
	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	partial  []byte
	packages int
	fetched  int
	last     []string
}

// newBuildWatch returns a watch that reports a build's progress on out until stop is called. If out
// is nil, it reports nothing.
func newBuildWatch(out io.Writer, what string) *buildWatch {
	w := &buildWatch{done: make(chan struct{})}
	if out == nil {
		return w
	}
	begin := time.Now()
	_, _ = fmt.Fprintln(out, what)
	w.wg.Go(func() {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		for {
			select {
			case <-w.done:
				return
			case <-ticker.C:
				_, _ = fmt.Fprintf(out, "still %s: %s%s\n", what, time.Since(begin).Round(time.Second), w.count())
			}
		}
	})
	return w
}

// Write implements [io.Writer].
func (w *buildWatch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = append(w.partial, p...)
	for {
		i := bytes.IndexByte(w.partial, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(w.partial[:i])
		w.partial = w.partial[i+1:]
		switch {
		case strings.HasPrefix(line, "go: downloading "):
			w.fetched++
		case !strings.ContainsAny(line, " \t"):
			w.packages++
		}
		w.last = append(w.last, line)
		if len(w.last) > tailLines {
			w.last = w.last[1:]
		}
	}
}

func (w *buildWatch) count() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.packages > 0:
		return fmt.Sprintf(", %d packages compiled", w.packages)
	case w.fetched > 0:
		return fmt.Sprintf(", %d modules downloaded", w.fetched)
	}
	return ""
}

func (w *buildWatch) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(append(w.last, string(w.partial)), "\n")
}

func (w *buildWatch) stop() {
	close(w.done)
	w.wg.Wait()
}
