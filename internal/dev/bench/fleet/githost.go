package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// gitHost is a git server with repositories of one branch and some tags, which it only lists.
type gitHost struct {
	url    string
	server *http.Server
	tags   int
	lists  atomic.Int64 // number of lists of refs

	mu    sync.Mutex
	heads map[string]int64 // number of the commit of the branch, by repository
	seen  map[string]bool  // repositories whose refs were listed
}

func startGitHost(ctx context.Context, tags int) (*gitHost, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a git server: %w", err)
	}
	h := &gitHost{url: "http://" + listener.Addr().String(), tags: tags, heads: map[string]int64{}, seen: map[string]bool{}}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = h.server.Serve(listener) }() // ends with close
	return h, nil
}

func (h *gitHost) close() { _ = h.server.Close() }

// commit returns the id of a commit.
func commit(n int64) string { return fmt.Sprintf("%040x", n+1) }

// push moves the branch of a repository, and returns its commits.
func (h *gitHost) push(repo string) (before, after string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heads[repo]++
	return commit(h.heads[repo] - 1), commit(h.heads[repo])
}

// distinct returns the number of repositories whose refs were listed.
func (h *gitHost) distinct() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

// packet returns a line of git's protocol.
func packet(line string) string { return fmt.Sprintf("%04x%s\n", len(line)+5, line) }

const flush = "0000"

// ServeHTTP answers the two requests of version 2 of git's protocol that list refs.
func (h *gitHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if repo, ok := strings.CutSuffix(r.URL.Path, "/info/refs"); ok && repo != "" {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		_, _ = io.WriteString(w, packet("# service=git-upload-pack")+flush+packet("version 2")+packet("ls-refs=unborn")+packet("object-format=sha1")+flush)
		return
	}
	repo, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/git-upload-pack")
	if _, err := io.Copy(io.Discard, r.Body); err != nil || !ok {
		http.NotFound(w, r)
		return
	}
	h.lists.Add(1)
	h.mu.Lock()
	h.seen[repo] = true
	head := h.heads[repo]
	h.mu.Unlock()
	var b strings.Builder
	b.WriteString(packet(commit(head) + " refs/heads/main"))
	for i := range h.tags {
		b.WriteString(packet(fmt.Sprintf("%s refs/tags/v1.%d.0", commit(int64(i)), i)))
	}
	b.WriteString(flush)
	w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
	_, _ = io.WriteString(w, b.String())
}

// forge is an integration with a git server.
type forge struct {
	host       *gitHost
	id, secret string
	repos      []string
}

// startForges starts git servers, adds an integration for each, and has each stack watch one
// repository.
func (p *product) startForges(ctx context.Context, hosts, stacks, tags int) (list []*forge, err error) {
	defer func() {
		if err != nil {
			for _, f := range list {
				f.host.close()
			}
		}
	}()
	for n := range hosts {
		host, err := startGitHost(ctx, tags)
		if err != nil {
			return list, err
		}
		f := &forge{host: host}
		list = append(list, f)
		var names []map[string]string
		for i := n; i < stacks; i += hosts {
			name := fmt.Sprintf("team/repo-%05d", i)
			f.repos = append(f.repos, name)
			names = append(names, map[string]string{"name": name})
		}
		var made struct{ ID, WebhookSecret string }
		err = p.call(ctx, http.MethodPost, "/api/console/orgs/"+p.server.Organization+"/integrations/custom", map[string]any{
			"name": fmt.Sprintf("host-%d", n), "baseUrl": host.url, "events": "poll", "repositories": names,
		}, &made)
		if err != nil {
			return list, err
		}
		f.id, f.secret = made.ID, made.WebhookSecret
	}
	return list, each(stacks, 8, func(i int) error {
		f := list[i%hosts]
		return p.call(ctx, http.MethodPut, p.deployments(p.stack(i))+"/settings", map[string]any{
			"sourceContext":    map[string]any{"git": map[string]any{"branch": "main"}},
			"operationContext": map[string]any{"options": map[string]any{"skipInstallDependencies": true}, "preRunCommands": []string{"print"}},
			"vcs": map[string]any{
				"provider": "custom", "repository": f.repos[i/hosts], "installationId": f.id, "deployCommits": true, "deployTags": true,
			},
		}, nil)
	})
}

// polled waits until the refs of all repositories were listed.
func polled(ctx context.Context, list []*forge, patience time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the server has not polled all repositories"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := 0
		for _, f := range list {
			missing += len(f.repos) - f.host.distinct()
		}
		if missing == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
