package joblog

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
)

const (
	// maxErrorText bounds the text of an [ErrorLine], in bytes.
	maxErrorText = 400
	// errorTime bounds a search for the first error, for which a page, or the result of a job, waits.
	errorTime = 5 * time.Second
)

// ErrorLine is a line that states an error.
type ErrorLine struct {
	Hit
	// Text is the text without colours and indentation.
	Text string
	// General reports that the line only says that something failed.
	General bool
}

// firstError is the result of a search.
type firstError struct {
	line  ErrorLine
	found bool
}

// FirstError returns the first line of a finished job's last claim that states an error: of the
// given stream, otherwise of the first stream that has one. found is false without such a line, and
// also if the search would take too long.
func (l *Store) FirstError(ctx context.Context, job store.Job, stream int) (line ErrorLine, found bool, err error) {
	if !job.Status.Final() || job.LogExpired || job.Epoch < 1 {
		return ErrorLine{}, false, nil
	}
	// The time of the end changes when a result replaces the verdict lost.
	key := fmt.Sprint(job.ID, " ", job.Epoch, " ", job.EndedAt.UnixNano(), " ", stream)
	if known, ok := l.firsts.Get(key); ok {
		return known.line, known.found, nil
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
	l.firsts.Put(key, firstError{line, found}, time.Now())
	return line, found, nil
}

func (l *Store) firstOf(ctx context.Context, job store.Job, stream int) (ErrorLine, bool, error) {
	first := errorSearch{stream: stream}
	err := l.each(ctx, Key(job.ID, job.Epoch, stream), 0, func(f protocol.Frame, _ int) bool {
		first.add(lastState(f.Text))
		return !first.specific && ctx.Err() == nil
	})
	return first.line, first.found, err
}

// errorSearch finds the first error in consecutive lines, which is a specific one if they have one.
type errorSearch struct {
	stream          int
	next            int64 // number of the next line
	line            ErrorLine
	found, specific bool
	introduced      bool // by the line before
}

func (s *errorSearch) add(text []byte) {
	kind, general := severity(text)
	specific := kind == Error && !general || s.introduced && bytes.HasPrefix(statement(text), []byte("* "))
	if !s.specific && (specific || kind == Error && !s.found) {
		s.line, s.found, s.specific = ErrorLine{Hit{s.stream, s.next}, errorText(text), !specific}, true, specific
	}
	s.introduced = kind == Error && general && bytes.HasSuffix(statement(text), []byte(" occurred:"))
	s.next++
}

func errorText(text []byte) string {
	plain := statement(text)
	if len(plain) > maxErrorText {
		return strings.ToValidUTF8(string(plain[:maxErrorText]), "") + "…"
	}
	return string(plain)
}
