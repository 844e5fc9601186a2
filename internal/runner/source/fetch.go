package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// The network gets so many tries, with a jittered pause between them that
// doubles.
const (
	fetchTries = 4
	firstPause = time.Second
)

// fetch is one fetch of one repository.
type fetch struct {
	repo *repository
	git  *commandLine
	log  io.Writer
}

// run fetches what is wanted, checks it out and returns the hash of the commit.
func (f *fetch) run(ctx context.Context, want revision) (string, error) {
	if want.asked == "" {
		fmt.Fprintf(f.log, "Cloning %s\n", f.repo.url)
	} else {
		fmt.Fprintf(f.log, "Cloning %s at %s %s\n", f.repo.url, want.kind(), want.asked)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--template="},
		{"remote", "add", "--", "origin", f.repo.url},
	} {
		if _, err := f.git.run(ctx, args...); err != nil {
			return "", fmt.Errorf("preparing the checkout: %w", err)
		}
	}
	var err error
	if want.commit != "" {
		err = f.commit(ctx, want)
	} else {
		err = f.ref(ctx, &want)
	}
	if err != nil {
		f.quote(err)
		return "", explain(f.repo, want, err)
	}
	hash, err := f.git.run(ctx, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return "", fmt.Errorf("reading the commit that was checked out: %w", err)
	}
	hash = strings.TrimSpace(hash)
	fmt.Fprintf(f.log, "Checked out commit %s\n", hash)
	return hash, nil
}

// ref fetches and checks out a ref; without one, the default branch, which it
// fills in.
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
	if want.branch != "" {
		// On a branch of that name, as after a clone: programs and the CLI look at it.
		_, err := f.git.run(ctx, "checkout", "--quiet", "--force", "-B", want.branch, target, "--")
		return err
	}
	return f.detach(ctx, target)
}

// defaultBranch asks the server for its default branch.
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
		if rest, ok := strings.CutPrefix(line, "ref: "); ok {
			ref, _, _ := strings.Cut(rest, "\t")
			return parseRevision(ref, "")
		}
		if hash, name, ok := strings.Cut(line, "\t"); ok && name == "HEAD" && hash != "" {
			return revision{ref: "HEAD", asked: "HEAD"}, nil // an old server or a detached head
		}
	}
	return revision{}, errors.New("the repository is empty or has no default branch: set a branch in the deployment settings")
}

// commit fetches and checks out a commit: by its hash if the server allows it,
// else by fetching all branches and tags and looking for it there.
func (f *fetch) commit(ctx context.Context, want revision) error {
	if want.isFullHash() {
		err := f.fetch(ctx, true, want.commit)
		if err == nil {
			return f.detach(ctx, want.commit)
		}
		if kind := classify(err); kind != failureNoCommit && kind != failureNoRef && kind != failureOther {
			return err
		}
		fmt.Fprintln(f.log, "The server does not hand out this commit by its hash; fetching all branches and tags")
	}
	if err := f.fetch(ctx, false, "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"); err != nil {
		return err
	}
	if _, err := f.git.run(ctx, "rev-parse", "--verify", "--quiet", want.commit+"^{commit}"); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("commit %s does not exist in the repository", want.asked)
	}
	return f.detach(ctx, want.commit)
}

func (f *fetch) detach(ctx context.Context, target string) error {
	_, err := f.git.run(ctx, "checkout", "--quiet", "--force", "--detach", target, "--")
	return err
}

// fetch fetches the refspecs, only their newest commits if shallow.
func (f *fetch) fetch(ctx context.Context, shallow bool, refspecs ...string) error {
	args := []string{"fetch", "--quiet", "--no-tags", "--no-recurse-submodules"}
	if shallow {
		args = append(args, "--depth=1")
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

// retry repeats what fails because of the network.
func (f *fetch) retry(ctx context.Context, try func() error) error {
	pause := firstPause
	for tried := 1; ; tried++ {
		err := try()
		if err == nil || ctx.Err() != nil || tried == fetchTries || classify(err) != failureNetwork {
			return err
		}
		wait := pause/2 + rand.N(pause)
		fmt.Fprintf(f.log, "Try %d of %d failed: %v; trying again in %.1f s\n", tried, fetchTries, err, wait.Seconds())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		pause *= 2
	}
}

// quote shows git's own words in the log, above our line.
func (f *fetch) quote(err error) {
	if failed, ok := errors.AsType[*commandError](err); ok {
		for line := range strings.SplitSeq(strings.TrimSpace(failed.output), "\n") {
			fmt.Fprintln(f.log, "git: "+line)
		}
	}
}
