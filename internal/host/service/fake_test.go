package service

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"workflowagent/internal/sys/initsystem"
)

type answer struct {
	out string
	err error
}

// scripted replaces the service manager's programs. It records the command lines and returns the
// next answer of a rule whose prefix matches. It repeats a rule's last answer.
type scripted struct {
	calls []string
	rules map[string][]answer
}

func (s *scripted) Run(_ context.Context, name string, args ...string) (string, error) {
	line := initsystem.CommandLine(name, args)
	s.calls = append(s.calls, line)
	for prefix, answers := range s.rules {
		if strings.HasPrefix(line, prefix) {
			if len(answers) > 1 {
				s.rules[prefix] = answers[1:]
			}
			return answers[0].out, answers[0].err
		}
	}
	return "", nil
}

func (s *scripted) Stream(_ context.Context, out io.Writer, name string, args ...string) error {
	s.calls = append(s.calls, initsystem.CommandLine(name, args))
	_, err := io.WriteString(out, "a line\n")
	return err
}

func (s *scripted) want(t *testing.T, calls ...string) {
	t.Helper()
	if !slices.Equal(s.calls, calls) {
		t.Errorf("ran\n  %s\nwant\n  %s", strings.Join(s.calls, "\n  "), strings.Join(calls, "\n  "))
	}
	s.calls = nil
}
