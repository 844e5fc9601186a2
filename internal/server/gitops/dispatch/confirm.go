package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
)

const (
	// maxDoubts is the number of attempts to confirm the head of a pull request. The servers of a forge
	// can differ for a moment after a push.
	maxDoubts = 4
	// doubtful is the time after which a poll asks again about a head that was not confirmed.
	doubtful = time.Hour
)

// errUnconfirmed means that the answer of a forge about a branch does not agree with its answer about a
// pull request.
var errUnconfirmed = errors.New("the forge's answers about the pull request and its branch differ")

// doubted is the error of an attempt to confirm the head of a pull request.
type doubted struct{ error }

func (d doubted) Unwrap() error { return d.error }

// confirm sets Fork of an open pull request unless its head is that of a branch of the repository,
// which only accounts with write access can push. Pull requests of some forges name the repository
// although others made them, so the branch itself is asked for its commit. doubt is why the forge did
// not confirm the head. After an error, the caller must try again.
func (s *Service) confirm(ctx context.Context, v *loadedEvent, p *vcs.Pull) (doubt, err error) {
	if p.State != vcs.PullOpen || p.Fork {
		return nil, nil
	}
	head, err := s.head(ctx, v, vcs.BranchPrefix+p.Source)
	switch {
	case err == nil && head == p.Head && head != "":
		return nil, nil
	case err == nil && head == "":
		doubt = fmt.Errorf("the repository has no branch %s: %w", p.Source, errUnconfirmed)
	case err == nil:
		doubt = fmt.Errorf("the branch %s is at commit %s: %w", p.Source, head, errUnconfirmed)
	default:
		doubt = fmt.Errorf("requesting the head of the branch %s: %w", p.Source, err)
	}
	if _, limited := errors.AsType[*vcs.RateLimited](doubt); limited || ctx.Err() != nil {
		return nil, unanswered{doubt}
	}
	// What was in doubt before is not waited for again, so that an approval acts at once.
	known, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.VCSPull, error) { return tx.PullByNumber(v.repo.ID, int64(p.Number)) })
	if store.IgnoreMissing(err) != nil {
		return nil, err
	}
	again := known.Doubt == string(vcs.ReasonUnconfirmed) && known.Head == p.Head
	if v.failed.Doubts+1 < maxDoubts && !again {
		return nil, doubted{unanswered{doubt}}
	}
	p.Fork, p.Doubt = true, vcs.ReasonUnconfirmed
	return doubt, nil
}

// askAgain stores events for the open pull requests whose heads were not confirmed some time ago.
func (s *Service) askAgain(tx *store.Tx, i store.VCSIntegration, r store.VCSRepo) error {
	known, err := tx.OpenPulls(r.ID)
	if err != nil {
		return err
	}
	for _, row := range known {
		if row.Doubt != string(vcs.ReasonUnconfirmed) || tx.Now().Sub(row.ReadAt) < doubtful {
			continue
		}
		if err := s.lookAt(tx, i, r, int(row.Number), row.Head); err != nil {
			return err
		}
	}
	return nil
}
