package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/workflow"
)

var fetchRetry = retry.Policy{First: time.Second, Max: 10 * time.Second, Tries: 4}

type fetch struct {
	repo *workflow.Repository
	git  *commandLine
	log  io.Writer

	redirects bool // redirects are followed
	depth     int  // see [workflow.GitSource]
	tags      bool // fetch all tags

	keep *Keep // the kept checkout to use, or nil
}

func (f *fetch) run(ctx context.Context, want revision) (string, error) {
	verb := "Cloning"
	if f.keep != nil {
		verb = "Updating the checkout of"
	}
	if want.asked == "" {
		fmt.Fprintf(f.log, "%s %s\n", verb, f.repo)
	} else {
		fmt.Fprintf(f.log, "%s %s at %s %s\n", verb, f.repo, want.kind(), want.asked)
	}
	if err := f.prepare(ctx); err != nil {
		return "", err
	}
	err := f.checkout(ctx, &want)
	if classify(err) == failureFormat && f.keep == nil {
		// Few repositories have SHA-256 hashes, so the others need no request that asks for it.
		if err := f.init(ctx, "--object-format=sha256"); err != nil {
			return "", err
		}
		err = f.checkout(ctx, &want)
	}
	if isRedirect(err) && !f.redirects {
		var same *workflow.Repository
		if same, err = f.redirected(ctx); err == nil {
			f.repo = same
			if _, err = f.git.run(ctx, "remote", "set-url", "--", "origin", same.String()); err == nil {
				err = f.checkout(ctx, &want)
			}
		}
	}
	if err != nil {
		f.quote(err)
		if f.keep != nil && ctx.Err() == nil && blames(err) {
			return "", &keptError{err}
		}
		return "", explain(f.repo, want, err)
	}
	hash, err := f.git.run(ctx, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return "", fmt.Errorf("reading the hash of the checkout: %w", err)
	}
	hash = strings.TrimSpace(hash)
	if !strings.HasPrefix(hash, want.commit) {
		return "", fmt.Errorf("cloning %s: commit %s was requested, but %s was checked out", f.repo, want.commit, hash)
	}
	fmt.Fprintf(f.log, "Checked out commit %s\n", hash)
	if f.tags {
		// The tags come after the checkout, so that none of them can be mistaken for it.
		if err := f.fetch(ctx, true, "+refs/tags/*:refs/tags/*"); err != nil {
			f.quote(err)
			return "", fmt.Errorf("fetching the tags of %s: %w", f.repo, err)
		}
	}
	return hash, nil
}

// prepare makes the checkout's directory a repository: the kept one, or an empty one.
func (f *fetch) prepare(ctx context.Context) error {
	if f.keep == nil {
		return f.init(ctx)
	}
	err := adopt(ctx, f.git, f.keep.Git, f.keep.Kept)
	if err == nil {
		_, err = f.git.run(ctx, "remote", "add", "--", "origin", f.repo.String())
	}
	if err != nil && ctx.Err() == nil {
		return &keptError{err}
	}
	return err
}

// init creates an empty repository in the place of an earlier one.
func (f *fetch) init(ctx context.Context, options ...string) error {
	if err := emptyDir(ctx, f.git.dir); err != nil {
		return err
	}
	for _, args := range [][]string{
		append([]string{"init", "--quiet", "--template="}, options...),
		{"remote", "add", "--", "origin", f.repo.String()},
	} {
		if _, err := f.git.run(ctx, args...); err != nil {
			return fmt.Errorf("preparing the checkout: %w", err)
		}
	}
	return nil
}

// checkout fetches and checks out a revision. It sets the ref of want if it has none.
func (f *fetch) checkout(ctx context.Context, want *revision) error {
	if want.commit != "" {
		return f.commit(ctx, *want)
	}
	return f.ref(ctx, want)
}

// ref fetches and checks out a ref. If want has no ref, it uses the default branch and sets it in
// want.
func (f *fetch) ref(ctx context.Context, want *revision) error {
	if want.ref == "" {
		branch, err := f.defaultBranch(ctx)
		if err != nil {
			return err
		}
		*want = branch
	}
	target := "refs/workflow/source"
	if want.branch != "" {
		target = "refs/remotes/origin/" + want.branch
	}
	if err := f.fetch(ctx, true, "+"+want.ref+":"+target); err != nil {
		return err
	}
	if err := f.verifyRef(*want); err != nil {
		return err
	}
	if want.branch != "" {
		// Check out a local branch of that name, as a clone does, because programs and the CLI read
		// it.
		_, err := f.git.run(ctx, "checkout", "--quiet", "--force", "-B", want.branch, target, "--")
		return err
	}
	return f.detach(ctx, target)
}

// verifyRef checks that the requested ref was fetched. If the server lacks a full name, git accepts
// a name that ends in it, such as refs/tags/refs/heads/main for refs/heads/main. A user who may
// push tags could otherwise substitute a tag for a deleted branch.
func (f *fetch) verifyRef(want revision) error {
	head, err := os.ReadFile(filepath.Join(f.git.dir, ".git", "FETCH_HEAD"))
	if err != nil {
		return fmt.Errorf("reading the fetched ref: %w", err)
	}
	_, rest, _ := strings.Cut(string(head), "\t") // cut off the hash
	if !strings.HasPrefix(rest, want.mark()) || want.ref == "HEAD" && strings.Contains(rest, "' of ") {
		return errors.New(want.absent())
	}
	return nil
}

func (f *fetch) defaultBranch(ctx context.Context) (revision, error) {
	var out string
	err := f.retry(ctx, func() (err error) {
		out, err = f.git.run(ctx, "ls-remote", "--symref", "--", "origin", "HEAD")
		return err
	})
	if err != nil {
		return revision{}, err
	}
	for line := range strings.SplitSeq(out, "\n") {
		// The list includes other refs whose names end in HEAD.
		value, name, _ := strings.Cut(line, "\t")
		if name != "HEAD" {
			continue
		}
		if ref, ok := strings.CutPrefix(value, "ref: "); ok {
			if !strings.HasPrefix(ref, "refs/") {
				return revision{}, fmt.Errorf("the server's default branch %q is not a valid ref", ref)
			}
			return parseRevision(ref, "")
		}
		if value != "" {
			return revision{ref: "HEAD", asked: "HEAD"}, nil // an old server or a detached head
		}
	}
	return revision{}, errors.New("the repository is empty or has no default branch: set a branch in the deployment settings")
}

// commit fetches a commit by its hash if the server allows it. Otherwise it fetches all branches
// and tags, and the ref that contains the commit if it is neither.
func (f *fetch) commit(ctx context.Context, want revision) error {
	if want.isFullHash() {
		err := f.fetch(ctx, true, want.commit)
		if err == nil {
			return f.detach(ctx, want.commit)
		}
		if kind := classify(err); kind != failureNoCommit && kind != failureNoRef && kind != failureOther || isRedirect(err) {
			return err
		}
		if f.keep != nil {
			return err // the kept objects could contain a commit that the repository no longer has
		}
		fmt.Fprintln(f.log, "The server does not offer this commit by its hash; fetching all branches and tags")
	}
	// Fetch into a namespace in which git does not search for short names. Otherwise git would
	// prefer a tag that is named like an abbreviated hash over the commit.
	if err := f.fetch(ctx, false, "+refs/heads/*:refs/workflow/heads/*", "+refs/tags/*:refs/workflow/tags/*"); err != nil {
		return err
	}
	out, err := f.git.run(ctx, "rev-parse", "--verify", want.commit+"^{commit}")
	if err != nil && ctx.Err() == nil && want.isFullHash() && want.ref != "" {
		if err := f.fetch(ctx, false, "+"+want.ref+":refs/workflow/source"); err != nil {
			return err
		}
		out, err = f.git.run(ctx, "rev-parse", "--verify", want.commit+"^{commit}")
	}
	hash := strings.TrimSpace(out)
	failed, _ := errors.AsType[*commandError](err)
	switch {
	case ctx.Err() != nil:
		return err
	case failed != nil && strings.Contains(failed.output, "ambiguous"):
		return fmt.Errorf("several commits begin with %s: use more digits", want.asked)
	case err != nil || !strings.HasPrefix(hash, want.commit):
		return fmt.Errorf("commit %s does not exist in the repository", want.asked)
	}
	return f.detach(ctx, hash)
}

func (f *fetch) detach(ctx context.Context, target string) error {
	_, err := f.git.run(ctx, "checkout", "--quiet", "--force", "--detach", target, "--")
	return err
}

func (f *fetch) fetch(ctx context.Context, shallow bool, refspecs ...string) error {
	// With --quiet, git would not report redirects.
	args := []string{"fetch", "--no-progress", "--no-tags", "--no-recurse-submodules"}
	if shallow && f.depth != workflow.WholeHistory {
		args = append(args, fmt.Sprintf("--depth=%d", max(1, f.depth)))
	}
	args = append(append(args, "--", "origin"), refspecs...)
	err := f.retry(ctx, func() error {
		_, err := f.git.run(ctx, args...)
		return err
	})
	if shallow && classify(err) == failureNoShallow {
		return f.fetch(ctx, false, refspecs...)
	}
	return err
}

func (f *fetch) retry(ctx context.Context, try func() error) error {
	for tried := 1; ; tried++ {
		err := try()
		if err == nil || ctx.Err() != nil || tried == fetchRetry.Tries || classify(err) != failureNetwork || isRedirect(err) {
			return err
		}
		pause := fetchRetry.Pause(tried-1, nil)
		fmt.Fprintf(f.log, "Attempt %d of %d failed: %v; retrying in %.1f s\n", tried, fetchRetry.Tries, err, pause.Seconds())
		if err := retry.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// quote copies git's messages to the log, before the runner's own line.
func (f *fetch) quote(err error) {
	if failed, ok := errors.AsType[*commandError](err); ok {
		for line := range strings.SplitSeq(strings.TrimSpace(failed.output), "\n") {
			fmt.Fprintln(f.log, "git: "+line)
		}
	}
}
