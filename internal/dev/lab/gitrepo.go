package lab

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/dev/lab/child"
)

// MainBranch is the first branch of every [Repo].
const MainBranch = "main"

// Repo is a bare repository served by a [GitServer].
type Repo struct {
	// URL is the address to clone from.
	URL string

	dir string
}

// Commit adds a commit to a branch and returns its hash. files maps slash-separated paths to
// contents. It adds or replaces these files and keeps all others. A new branch starts at main. A
// file that starts with "#!" is executable.
func (r *Repo) Commit(ctx context.Context, branch, message string, files map[string]string) (string, error) {
	var changes bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(files)) {
		mode := "100644"
		if strings.HasPrefix(files[path], "#!") {
			mode = "100755"
		}
		fmt.Fprintf(&changes, "M %s inline %s\n", mode, strconv.Quote(path))
		fmt.Fprintf(&changes, "data %d\n%s\n", len(files[path]), files[path])
	}
	return r.commit(ctx, branch, message, changes.String())
}

// Move adds a commit that renames a file to a branch. It returns the commit's hash.
func (r *Repo) Move(ctx context.Context, branch, from, to string) (string, error) {
	return r.commit(ctx, branch, "Move "+from, fmt.Sprintf("R %s %s\n", strconv.Quote(from), strconv.Quote(to)))
}

// commit adds a commit with changes in the language of git fast-import.
func (r *Repo) commit(ctx context.Context, branch, message, changes string) (string, error) {
	var script bytes.Buffer

	fmt.Fprintf(&script, "commit refs/heads/%s\n", branch)
	fmt.Fprintf(&script, "committer Lab <lab@example.invalid> %d +0000\n", time.Now().Unix())
	fmt.Fprintf(&script, "data %d\n%s\n", len(message), message)
	for _, parent := range []string{branch, MainBranch} {
		if hash, err := r.git(ctx, nil, "rev-parse", "--verify", "--quiet", "refs/heads/"+parent); err == nil {
			fmt.Fprintf(&script, "from %s\n", hash)
			break
		}
	}
	script.WriteString(changes)
	if _, err := r.git(ctx, &script, "fast-import", "--quiet", "--date-format=raw"); err != nil {
		return "", fmt.Errorf("committing to %s: %w", branch, err)
	}
	hash, err := r.git(ctx, nil, "rev-parse", "--verify", "refs/heads/"+branch)
	if err != nil {
		return "", fmt.Errorf("reading the new commit on %s: %w", branch, err)
	}
	return hash, nil
}

func (r *Repo) init(ctx context.Context, sha256 bool) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("creating a repository: %w", err)
	}
	format := "sha1"
	if sha256 {
		format = "sha256"
	}
	steps := [][]string{
		{"init", "--quiet", "--bare", "--initial-branch=" + MainBranch, "--object-format=" + format},
		// Allow fetches by commit and partial fetches, as hosted services do.
		{"config", "uploadpack.allowAnySHA1InWant", "true"},
		{"config", "uploadpack.allowFilter", "true"},
		{"config", "http.receivepack", "false"},
	}
	for _, step := range steps {
		if _, err := r.git(ctx, nil, step...); err != nil {
			return fmt.Errorf("creating a repository: %w", err)
		}
	}
	return nil
}

func (r *Repo) git(ctx context.Context, stdin *bytes.Buffer, args ...string) (string, error) {
	cmd := child.Command(ctx, "git", args...)
	cmd.Dir, cmd.Env = r.dir, gitEnv()
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// ReadFiles returns the regular files under dir, by slash-separated path, in the form of
// [GitServer.NewRepo] and [Repo.Commit].
func ReadFiles(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		files[filepath.ToSlash(name)] = string(content)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading repository files: %w", err)
	}
	return files, nil
}

// Dir returns the repository's directory, for cloning and pushing without the server.
func (r *Repo) Dir() string { return r.dir }
