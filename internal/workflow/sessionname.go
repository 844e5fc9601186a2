package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxSessionName is the maximum length of the name of an AWS session.
const maxSessionName = 64

// SessionName contains the values of the placeholders in the name of a job's AWS session.
type SessionName struct {
	Organization, Project, Stack string
	Operation                    Operation
	Version                      int64
	DeploymentID                 string
}

var placeholder = regexp.MustCompile(`\$\{[^}]*\}`)

// values returns the value of each placeholder, with names of at most longest bytes.
func (n SessionName) values(longest int) map[string]string {
	short := func(name string) string { return name[:min(len(name), longest)] }
	return map[string]string{
		"${organization.name}":  short(n.Organization),
		"${project.name}":       short(n.Project),
		"${stack.name}":         short(n.Stack),
		"${operation}":          string(n.Operation),
		"${deployment.version}": strconv.FormatInt(n.Version, 10),
		"${deployment.id}":      n.DeploymentID,
	}
}

func (n SessionName) expand(template string, longest int) string {
	values := n.values(longest)
	return placeholder.ReplaceAllStringFunc(template, func(p string) string { return values[p] })
}

// render returns the name of the session. If it is too long, the longest of the organization's, the
// project's and the stack's name are truncated.
func (n SessionName) render(template string) string {
	for longest := max(len(n.Organization), len(n.Project), len(n.Stack)); ; longest-- {
		if name := n.expand(template, longest); len(name) <= maxSessionName || longest <= 0 {
			return name
		}
	}
}

// checkSessionName returns an error if a template has unknown placeholders or characters that AWS
// rejects, or if no truncation makes every result short enough.
func checkSessionName(template string) error {
	known := SessionName{
		Operation: OperationRemediateDrift, Version: 9_999_999, DeploymentID: "00000000-0000-0000-0000-000000000000",
	}
	values := known.values(0)
	for _, p := range placeholder.FindAllString(template, -1) {
		if _, ok := values[p]; !ok {
			return fmt.Errorf("contains the unknown placeholder %s", p)
		}
	}
	literal := placeholder.ReplaceAllString(template, "")
	for _, c := range literal {
		if !isSessionNameRune(c) {
			return fmt.Errorf("contains %q; use letters, digits and the characters _+=,.@-, and placeholders such as ${stack.name}", c)
		}
	}
	if literal == template && len(template) < 2 {
		return errors.New("must have at least 2 characters")
	}
	if len(known.expand(template, 0)) > maxSessionName {
		return fmt.Errorf("is longer than %d characters even if the names are truncated; shorten it", maxSessionName)
	}
	return nil
}

func isSessionNameRune(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_+=,.@-", c)
}

// Render returns the settings with the placeholders replaced by their values. It returns nil for
// nil.
func (o *OIDCSettings) Render(n SessionName) *OIDCSettings {
	if o == nil || o.AWS == nil {
		return o
	}
	rendered, aws := *o, *o.AWS
	aws.SessionName = n.render(aws.SessionName)
	rendered.AWS = &aws
	return &rendered
}
