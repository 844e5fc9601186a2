package joblog

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

const (
	// maxErrorText bounds the text of an [ErrorLine], in bytes.
	maxErrorText = 400
	// errorTime bounds the search for the first error, which delays a page.
	errorTime = 2 * time.Second
	// maxFirstErrors is the number of jobs whose first error is in memory.
	maxFirstErrors = 1024
)

// ErrorLine is a line that states an error.
type ErrorLine struct {
	Hit
	// Text is the text without colours and indentation.
	Text string
}

// general are the errors with which the CLI ends. They say less than the errors before or after
// them.
var general = []string{"error: update failed", "error: preview failed", "error: refresh failed", "error: destroy failed"}

// FirstError returns the first line of a finished job's last claim that states an error: of the
// given stream, otherwise of the first stream that has one. found is false without such a line, and
// also if the search would take too long.
func (l *Store) FirstError(ctx context.Context, job store.Job, stream int) (line ErrorLine, found bool, err error) {
	if !job.Status.Final() || job.LogExpired || job.Epoch < 1 {
		return ErrorLine{}, false, nil
	}
	key := firstKey{job.ID, job.Epoch, job.EndedAt.UnixNano(), stream}
	if line, found, known := l.firsts.get(key); known {
		return line, found, nil
	}
	search, cancel := context.WithTimeout(ctx, errorTime)
	defer cancel()
	select {
	case l.finds <- struct{}{}:
		defer func() { <-l.finds }()
	case <-search.Done():
		return ErrorLine{}, false, ctx.Err()
	}
	order := []int{}
	if stream >= 0 {
		order = append(order, stream)
	}
	for i := range Streams(job) {
		if i != stream {
			order = append(order, i)
		}
	}
	for _, i := range order {
		if line, found, err = l.firstOf(search, job, i); err != nil || found {
			break
		}
	}
	if search.Err() != nil {
		return ErrorLine{}, false, ctx.Err()
	}
	if err != nil {
		return ErrorLine{}, false, err
	}
	l.firsts.put(key, line, found)
	return line, found, nil
}

func (l *Store) firstOf(ctx context.Context, job store.Job, stream int) (first ErrorLine, found bool, err error) {
	var n int64
	err = l.each(ctx, Key(job.ID, job.Epoch, stream), 0, func(f protocol.Frame, _ int) bool {
		if text := lastState(f.Text); severity(text) == Error {
			line := errorText(text)
			specific := true
			for _, g := range general {
				specific = specific && line != g
			}
			if specific || !found {
				first, found = ErrorLine{Hit{stream, n}, line}, true
			}
			if specific {
				return false
			}
		}
		n++
		return ctx.Err() == nil
	})
	return first, found, err
}

func errorText(text []byte) string {
	plain := bytes.TrimSpace(termtext.Plain(nil, text[:min(len(text), maxRowText)]))
	if len(plain) > maxErrorText {
		return strings.ToValidUTF8(string(plain[:maxErrorText]), "") + "…"
	}
	return string(plain)
}

// firstKey identifies a search. The time of the end changes when a result replaces the verdict lost.
type firstKey struct {
	job    string
	epoch  int64
	ended  int64
	stream int
}

type firstValue struct {
	line  ErrorLine
	found bool
}

// firstErrors are the results of the last searches for the first error.
type firstErrors struct {
	mu    sync.Mutex
	byKey map[firstKey]firstValue
}

func (f *firstErrors) get(key firstKey) (line ErrorLine, found, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, known := f.byKey[key]
	return v.line, v.found, known
}

func (f *firstErrors) put(key firstKey, line ErrorLine, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey == nil || len(f.byKey) >= maxFirstErrors {
		f.byKey = map[firstKey]firstValue{}
	}
	f.byKey[key] = firstValue{line, found}
}
