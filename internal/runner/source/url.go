package source

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"workflowagent/internal/protocol"
	"workflowagent/internal/workflow"
)

// parseURL parses a deployment's repository URL. It accepts only safe network protocols, because
// git's "ext::" runs commands, and a path would read files of the job's machine.
func parseURL(raw string) (*workflow.Repository, error) {
	if strings.TrimSpace(raw) == "" {
		return nil, errors.New("the deployment has a git source without a repository URL: set sourceContext.git.repoUrl")
	}
	repo, err := workflow.ParseRepository(raw)
	if err != nil {
		return nil, fmt.Errorf("parsing the repository URL: %w", err)
	}
	return repo, nil
}

// URLSecrets returns the parts of a repository URL that must not appear in a log. It accepts
// invalid URLs, because an error might quote them.
func URLSecrets(raw string) []string {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.User == nil {
		return nil
	}
	password, ok := u.User.Password()
	if ok && password != "" {
		return []string{password}
	}
	// https://TOKEN@host is a common form for a URL whose only credential is a token.
	if name := u.User.Username(); name != "" && (u.Scheme == "https" || u.Scheme == "http") && len(name) >= minTokenLength {
		return []string{name}
	}
	return nil
}

// minTokenLength is the minimum length of a user name that is treated as a token, in an http or
// https URL without a password.
const minTokenLength = 20

func cleartext(repo *workflow.Repository) bool {
	return repo.Scheme == "http" && !protocol.IsLoopback(repo.Host)
}
