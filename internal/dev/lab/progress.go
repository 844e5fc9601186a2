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

	mu     sync.Mutex
	output bytes.Buffer
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
	return w.output.Write(p)
}

func (w *buildWatch) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Split(w.output.String(), "\n")
}

func (w *buildWatch) count() string {
	packages, fetched := 0, 0
	for _, line := range w.lines() {
		if strings.HasPrefix(line, "go: downloading ") {
			fetched++
		} else if line != "" && !strings.ContainsAny(line, " \t") {
			packages++
		}
	}
	switch {
	case packages > 0:
		return fmt.Sprintf(", %d packages compiled", packages)
	case fetched > 0:
		return fmt.Sprintf(", %d modules downloaded", fetched)
	}
	return ""
}

func (w *buildWatch) tail() string {
	lines := w.lines()
	return strings.Join(lines[max(0, len(lines)-tailLines-1):], "\n")
}

func (w *buildWatch) stop() {
	close(w.done)
	w.wg.Wait()
}
