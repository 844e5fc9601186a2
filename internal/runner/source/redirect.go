package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/workflow"
)

// With allowed_repositories, git follows no redirects, because a redirect would lead to a repository
// that the patterns do not permit. Without it, git follows a redirect of its first request, and the
// log names the target. The askpass program answers only for the first address in both cases.

// redirectTime limits the request that asks for a redirect's target.
const redirectTime = 30 * time.Second

// refsPath is the path of git's first request, below the repository's address.
const refsPath = "/info/refs"

// errRedirected reports that git was redirected and did not follow.
var errRedirected = errors.New("the server redirects to another address, and the agent's allowed_repositories permits no redirects")

// isRedirect reports whether git failed because of a redirect that it must not follow.
func isRedirect(err error) bool {
	failed, ok := errors.AsType[*commandError](err)
	return ok && slices.ContainsFunc([]string{"301", "302", "303", "307", "308"}, func(status string) bool {
		return strings.Contains(failed.output, "returned error: "+status)
	})
}

// redirected returns the error for a redirect that git did not follow, with its target. If the target
// is the same repository on the same server, which is how some servers add ".git", it returns the
// target instead.
func (f *fetch) redirected(ctx context.Context) (*workflow.Repository, error) {
	target, err := redirectTarget(ctx, f.repo)
	if err != nil || target == "" {
		return nil, errRedirected // servers can hide the target from requests without credentials
	}
	repo, err := workflow.ParseRepository(target)
	if err == nil && repo.Origin() == f.repo.Origin() && repo.Name() == f.repo.Name() && repo.String() != f.repo.String() {
		repo.User, repo.Password = f.repo.User, f.repo.Password
		return repo, nil
	}
	return nil, fmt.Errorf("%w; set the address to %s if you trust it, and add it to allowed_repositories", errRedirected, target)
}

// redirectTarget returns the repository's address to which the server redirects git's first request,
// without user name and query, or "". It sends no credentials and does not follow the redirect.
func redirectTarget(ctx context.Context, repo *workflow.Repository) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redirectTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(repo.String(), "/")+refsPath+"?service=git-upload-pack", http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", "git/2") // some servers redirect only git
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() // not read
	location, err := resp.Location()
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(plainURL(location), refsPath), nil
}

// plainURL returns a URL without its user and query, which can be secret.
func plainURL(u *url.URL) string {
	plain := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return plain.String()
}

// noteRedirects writes the targets of redirects that git has followed to the log, each one once.
func (c *commandLine) noteRedirects(output string) {
	for line := range strings.Lines(output) {
		raw, ok := strings.CutPrefix(strings.TrimSpace(line), "warning: redirecting to ")
		target, err := url.Parse(raw)
		if !ok || err != nil || plainURL(target) == c.redirect {
			continue
		}
		c.redirect = plainURL(target)
		fmt.Fprintf(c.log, "warning: the server redirects to %s: set this address in the deployment settings\n", c.redirect)
	}
}
