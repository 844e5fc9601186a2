package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"workflowagent/internal/words"
	"workflowagent/internal/workflow"
)

// Limits on the submodules of a checkout.
const (
	maxSubmodules      = 200
	maxSubmoduleDepth  = 8
	maxSubmoduleBytes  = 8 << 30 // as stored by git
	maxSubmodulesFile  = 64 << 10
	submodulesFile     = ".gitmodules"
	gitlinkMode        = "160000 commit "
	regularFile        = "100644 blob "
	executableFile     = "100755 blob "
	updateNoSubmodules = "none"
)

// submodule is an entry of a .gitmodules file.
type submodule struct{ path, url, update string }

// submodules fetches the submodules of a checkout without git's own command for them, which would
// run commands and accept addresses that a repository chooses.
type submodules struct {
	g     *Git
	login *login // of the deployment's repository; other servers get no credentials
	env   []string
	count int
	bytes int64
}

// fetch fetches the submodules of the checkout of repo in dir, and theirs.
func (s *submodules) fetch(ctx context.Context, repo *workflow.Repository, dir string, depth int) error {
	git := &commandLine{dir: dir, env: s.env, log: s.g.Log}
	modules, err := listSubmodules(ctx, git)
	if err != nil || len(modules) == 0 {
		return err
	}
	if depth > maxSubmoduleDepth {
		return fmt.Errorf("the submodules are nested more than %d levels deep", maxSubmoduleDepth)
	}
	paths := []string{"ls-tree", "-z", "HEAD", "--"}
	for _, m := range modules {
		paths = append(paths, m.path)
	}
	out, err := git.run(ctx, paths...)
	if err != nil {
		return fmt.Errorf("reading the commits of the submodules: %w", err)
	}
	commits := map[string]string{}
	for entry := range strings.SplitSeq(out, "\x00") {
		if info, path, ok := strings.Cut(entry, "\t"); ok {
			if hash, ok := strings.CutPrefix(info, gitlinkMode); ok {
				commits[path] = hash
			}
		}
	}
	for _, m := range modules {
		commit, ok := commits[m.path]
		if !ok || m.update == updateNoSubmodules {
			continue // git skips these entries, too
		}
		if s.count++; s.count > maxSubmodules {
			return fmt.Errorf("the repository has more than %d submodules", maxSubmodules)
		}
		if err := s.fetchOne(ctx, repo, dir, m, commit, depth); err != nil {
			return fmt.Errorf("fetching the submodule %q: %w", m.path, err)
		}
	}
	return nil
}

func (s *submodules) fetchOne(ctx context.Context, parent *workflow.Repository, dir string, m submodule, commit string, depth int) error {
	repo, err := parent.Resolve(m.url)
	if err != nil {
		return fmt.Errorf("its address is not usable: %w", err)
	}
	// The deployment's token is for https. Addresses of the same host for ssh are common in
	// .gitmodules files, because developers use keys.
	if repo.Scheme == "ssh" && s.login.repo.Scheme != "ssh" && repo.Host == s.login.repo.Host && s.login.answers.Password != "" {
		repo = repo.OnOrigin(s.login.repo)
	}
	if !workflow.AllowsRepository(s.g.AllowedRepositories, repo.Name()) {
		return fmt.Errorf("the repository %q is not in the host's allowed_repositories", repo)
	}
	at, err := submoduleDir(dir, m.path)
	if err != nil {
		return err
	}
	login := s.login
	if repo.Origin() != login.repo.Origin() {
		if login, err = newLogin(repo, nil, s.g.Private, s.g.Askpass); err != nil {
			return err
		}
	}
	f := &fetch{repo: repo, git: &commandLine{dir: at, env: append(slices.Clone(s.env), login.env...), log: s.g.Log}, log: s.g.Log, redirects: s.g.AllowedRepositories == nil}
	if _, err := f.run(ctx, revision{commit: commit, asked: commit}); err != nil {
		return err
	}
	size, err := storedBytes(ctx, f.git)
	if err != nil {
		return err
	}
	if s.bytes += size; s.bytes > maxSubmoduleBytes {
		return fmt.Errorf("the submodules have more than %s", words.Bytes(maxSubmoduleBytes))
	}
	if s.g.Source.LFS {
		if err := fetchLFS(ctx, f, login); err != nil {
			return err
		}
	}
	return s.fetch(ctx, repo, at, depth+1)
}

// listSubmodules returns the entries of the .gitmodules file of the checked-out commit.
func listSubmodules(ctx context.Context, git *commandLine) ([]submodule, error) {
	out, err := git.run(ctx, "ls-tree", "-z", "-l", "HEAD", "--", submodulesFile)
	if err != nil {
		return nil, fmt.Errorf("looking for submodules: %w", err)
	}
	info, _, found := strings.Cut(out, "\t")
	if !found {
		return nil, nil
	}
	if !strings.HasPrefix(info, regularFile) && !strings.HasPrefix(info, executableFile) {
		return nil, fmt.Errorf("%s is not a regular file", submodulesFile)
	}
	fields := strings.Fields(info)
	if size, err := strconv.Atoi(fields[len(fields)-1]); err != nil || size > maxSubmodulesFile {
		return nil, fmt.Errorf("%s has more than %s", submodulesFile, words.Bytes(maxSubmodulesFile))
	}
	// By default, git would follow include directives to files of the job's machine.
	out, err = git.run(ctx, "config", "--no-includes", "--blob=HEAD:"+submodulesFile, "-z", "--list")
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", submodulesFile, err)
	}
	var names []string
	byName := map[string]*submodule{}
	for setting := range strings.SplitSeq(out, "\x00") {
		key, value, _ := strings.Cut(setting, "\n")
		name, ok := strings.CutPrefix(key, "submodule.")
		dot := strings.LastIndexByte(name, '.')
		if !ok || dot < 0 {
			continue
		}
		name, key = name[:dot], name[dot+1:]
		m := byName[name]
		if m == nil {
			m = &submodule{}
			byName[name], names = m, append(names, name)
		}
		switch key {
		case "path":
			m.path = strings.TrimSuffix(value, "/")
		case "url":
			m.url = value
		case "update":
			m.update = value
		}
	}
	modules := make([]submodule, 0, len(names))
	for _, name := range names {
		if m := *byName[name]; m.path != "" {
			modules = append(modules, m)
		}
	}
	return modules, nil
}

// submoduleDir returns the directory of a submodule, which git has created empty. No part of its
// path may be a symbolic link, because git would write to the link's target.
func submoduleDir(checkout, path string) (string, error) {
	root, err := filepath.EvalSymlinks(checkout)
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	if !filepath.IsLocal(path) || filepath.Clean(path) != path {
		return "", errors.New("its path leads out of the repository")
	}
	want := filepath.Join(root, path)
	dir, err := filepath.EvalSymlinks(want)
	if err != nil {
		return "", fmt.Errorf("finding its directory: %w", err)
	}
	if dir != want {
		return "", errors.New("its path contains a symbolic link")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("reading its directory: %w", err)
	}
	if len(entries) > 0 {
		return "", errors.New("its directory is not empty")
	}
	return dir, nil
}

// storedBytes returns the size of a repository's objects.
func storedBytes(ctx context.Context, git *commandLine) (int64, error) {
	out, err := git.run(ctx, "count-objects", "-v")
	if err != nil {
		return 0, fmt.Errorf("measuring the repository: %w", err)
	}
	var kib int64
	for line := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name != "size" && name != "size-pack" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("measuring the repository: %w", err)
		}
		kib += n
	}
	return kib << 10, nil
}
