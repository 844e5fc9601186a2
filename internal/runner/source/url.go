package source

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// parseURL reads the repository URL of a deployment. Only the protocols that talk to
// a server and are safe to hand to git are let through: git's own "ext::" runs
// commands, and a path would read what lies on the machine of the job.
func parseURL(raw string) (*workflow.Repository, error) {
	if strings.TrimSpace(raw) == "" {
		return nil, errors.New("the deployment has a git source without a repository URL: set sourceContext.git.repoUrl")
	}
	repo, err := workflow.ParseRepository(raw)
	if err != nil {
		return nil, fmt.Errorf("the repository URL cannot be used: %w", err)
	}
	return repo, nil
}

// URLSecrets returns the parts of a repository URL that must not show in a log. It
// also looks at URLs that cannot be used, because an error may be about them.
func URLSecrets(raw string) []string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.User == nil {
		return nil
	}
	password, ok := u.User.Password()
	if ok && password != "" {
		return []string{password}
	}
	// https://TOKEN@host is a common way to give a token and nothing else.
	if name := u.User.Username(); name != "" && (u.Scheme == "https" || u.Scheme == "http") && len(name) >= minTokenLength {
		return []string{name}
	}
	return nil
}

// minTokenLength is the length from which the user name of an https URL without
// a password is taken for a token and not for somebody's name.
const minTokenLength = 20

// cleartext reports whether credentials would cross a network unencrypted.
func cleartext(repo *workflow.Repository) bool {
	return repo.Scheme == "http" && !protocol.IsLoopback(repo.Host)
}
