package runner

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/delivery"
	"workflowagent/internal/redact"
)

// stepLog masks a step's output, spools it and, if requested, copies it to the runner's own output.
// Writes never fail: output that cannot be stored is dropped and logged, and the step continues.
type stepLog struct {
	masked *redact.Writer
	sink   *logSink
	output func() bool // waits until the step's output may be written, or reports that it must not
}

func newStepLog(masks *redact.Set, stream *delivery.Stream, echo io.Writer, log *logrus.Entry) *stepLog {
	sink := &logSink{stream: stream, echo: echo, log: log}
	return &stepLog{masked: masks.Writer(sink), sink: sink}
}

// Write writes output of the step.
func (l *stepLog) Write(p []byte) (int, error) {
	if l.output == nil || l.output() {
		_, _ = l.masked.Write(p) // the sink never fails
	}
	return len(p), nil
}

// line adds a line from the runner to the step's log. It first ends an unfinished line of the
// step's output.
func (l *stepLog) line(text string) {
	text = strings.ReplaceAll(text, "\n", " ")
	_ = l.masked.Flush()
	if l.sink.midLine() {
		text = "\n" + text
	}
	_, _ = l.masked.Write([]byte(text + "\n"))
}

func (l *stepLog) lastLine() string {
	_ = l.masked.Flush()
	return l.sink.lastLine()
}

func (l *stepLog) close() {
	_ = l.masked.Close()
	if err := l.sink.stream.Close(); err != nil {
		l.sink.log.WithError(err).Warn("closing a step's log")
	}
}

const maxLastLine = 4 << 10

type logSink struct {
	stream *delivery.Stream
	echo   io.Writer
	log    *logrus.Entry

	mu       sync.Mutex
	failed   bool
	current  []byte // the incomplete line
	last     []byte // the last complete line that was not empty
	hostless string // what to do about a policy pack without a language host
}

func (s *logSink) Write(p []byte) (int, error) {
	if _, err := s.stream.Write(p); err != nil {
		s.mu.Lock()
		first := !s.failed
		s.failed = true
		s.mu.Unlock()
		if first {
			s.log.WithError(err).Error("storing the job's output: output is lost")
		}
	}
	if s.echo != nil {
		if _, err := s.echo.Write(p); err != nil {
			s.log.WithError(err).Warn("copying the job's log to the runner's output: copying stops")
			s.echo = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchHosts(p)
	s.remember(p)
	return len(p), nil
}

// remember keeps the last line of the output. It examines only the end of p.
func (s *logSink) remember(p []byte) {
	end := bytes.LastIndexByte(p, '\n')
	if end < 0 {
		s.current = appendLimited(s.current, p)
		return
	}
	lines := p[:end]
	for {
		start := bytes.LastIndexByte(lines, '\n') + 1
		line := lines[start:]
		if start == 0 {
			line = appendLimited(s.current, line)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			s.last = appendLimited(s.last[:0], line)
			break
		}
		if start == 0 {
			break
		}
		lines = lines[:start-1]
	}
	s.current = appendLimited(s.current[:0], p[end+1:])
}

func appendLimited(dst, src []byte) []byte {
	room := max(0, maxLastLine-len(dst))
	return append(dst, src[:min(room, len(src))]...)
}

func (s *logSink) lastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line := strings.TrimSpace(string(s.current)); line != "" {
		return line
	}
	return strings.TrimSpace(string(s.last))
}

func (s *logSink) midLine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.current) > 0
}
