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
	// Violation is the first mandatory violation of a policy; its policy is "" without one.
	Violation Violation
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
		out.Violation.add(Hit{stream, first.next}, text)
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

// Violation is a violation of a policy, as pulumi prints it at the end of an update or preview.
type Violation struct {
	Hit
	// Policy, Resource and Message are untrusted. Resource is the name of the resource.
	Policy, Resource, Message string
}

// violation is the form of the line that names a mandatory violation, without its indentation. A line with the message
// follows it.
var violation = regexp.MustCompile(`^- \[mandatory\](?: \[severity: \w+\])? +(\S+) +\(\S+: (.+)\)$`)

// add reads a line of a log: the first one that names a violation, and the one after it.
func (v *Violation) add(at Hit, text []byte) {
	switch {
	case v.Policy == "":
		if !bytes.Contains(text, []byte("[mandatory]")) {
			return
		}
		if m := violation.FindSubmatch(statement(text)); m != nil {
			v.Hit, v.Policy, v.Resource = at, string(m[1]), string(m[2])
		}
	case at.Line == v.Line+1:
		v.Message = errorText(text)
	}
}
