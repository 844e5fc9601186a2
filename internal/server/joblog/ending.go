package joblog

import (
	"bytes"
	"context"
	"regexp"
	"strings"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// Subject is a resource about which pulumi can have printed messages.
type Subject struct{ Type, Name string }

// Ending is what the log of a step states about its failure.
type Ending struct {
	// First is the first error, if HasFirst is set: a specific one if the log has one.
	First    ErrorLine
	HasFirst bool
	// About is the first error below the heading of a subject; Subject is its index, or -1 without one.
	About   ErrorLine
	Subject int
}

// Ending reads the log of a step of a job's last claim, which must be complete, in one pass. It returns what it found
// if that would take too long.
func (l *Store) Ending(ctx context.Context, job store.Job, stream int, subjects []Subject) (Ending, error) {
	out := Ending{Subject: -1}
	if job.LogExpired || job.Epoch < 1 || stream < 0 || stream >= Streams(job) {
		return out, nil
	}
	search, cancel := context.WithTimeout(ctx, errorTime)
	defer cancel()
	select {
	case l.finds <- struct{}{}:
		defer func() { <-l.finds }()
	case <-search.Done():
		return out, ctx.Err()
	}
	first, about := errorSearch{stream: stream}, errorSearch{}
	under := -1
	err := l.each(search, Key(job.ID, job.Epoch, stream), 0, func(f protocol.Frame, _ int) bool {
		text := lastState(f.Text)
		if out.Subject < 0 && len(subjects) > 0 {
			if at, heading := headingOf(text, subjects); heading {
				out.conclude(under, about)
				under, about = at, errorSearch{stream: stream, next: first.next + 1}
			} else if under >= 0 {
				if about.add(text); about.specific {
					out.conclude(under, about)
				}
			}
		}
		first.add(text)
		return (!first.specific || len(subjects) > 0 && out.Subject < 0) && search.Err() == nil
	})
	out.conclude(under, about)
	out.First, out.HasFirst = first.line, first.found
	if search.Err() != nil {
		return out, ctx.Err()
	}
	return out, err
}

// conclude records the error below the heading of a subject, if there is one and no earlier one is known.
func (e *Ending) conclude(subject int, s errorSearch) {
	if e.Subject < 0 && subject >= 0 && s.found {
		e.About, e.Subject = s.line, subject
	}
}

// heading is the form of the lines with which pulumi introduces the messages about a resource, without their
// indentation.
var heading = regexp.MustCompile(`^([^\s(]+) \((.+)\):$`)

// headingOf reports whether a line is the heading of a resource, and the index of the resource in subjects, or -1.
func headingOf(text []byte, subjects []Subject) (at int, ok bool) {
	if !bytes.Contains(text, []byte("):")) {
		return -1, false
	}
	m := heading.FindSubmatch(statement(text))
	if m == nil {
		return -1, false
	}
	for i, s := range subjects {
		if termtext.OneLine(string(m[2]), 0) == termtext.OneLine(s.Name, 0) && lastPart(string(m[1])) == lastPart(s.Type) {
			return i, true
		}
	}
	return -1, true
}

// lastPart returns the last part of a type, of which pulumi prints a short form: aws:s3:Bucket for
// aws:s3/bucket:Bucket.
func lastPart(kind string) string { return kind[strings.LastIndexByte(kind, ':')+1:] }
