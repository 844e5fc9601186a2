package rest

import (
	"context"
	"errors"
	"fmt"

	"workflowagent/internal/server/vcs"
)

// Thread is the comments of a pull request.
type Thread interface {
	// Create adds a comment.
	Create(ctx context.Context, body string) (id string, err error)
	// Replace replaces the body of a comment, or returns an error that wraps [vcs.ErrNotFound].
	Replace(ctx context.Context, id, body string) error
	// Find returns the comment of the integration's own account that contains a text, or "".
	// Others may write the text too, and their comments are never changed.
	Find(ctx context.Context, text string) (id string, err error)
}

// Upsert implements [vcs.Commenter] for the thread of a pull request.
func Upsert(ctx context.Context, t Thread, pull int, c vcs.Comment) (id string, err error) {
	if id, err = upsert(ctx, t, c); err != nil {
		return "", fmt.Errorf("commenting on pull request %d: %w", pull, err)
	}
	return id, nil
}

func upsert(ctx context.Context, t Thread, c vcs.Comment) (id string, err error) {
	if c.ID != "" {
		if err := t.Replace(ctx, c.ID, c.Body); !errors.Is(err, vcs.ErrNotFound) {
			return c.ID, err
		}
	}
	id, err = t.Find(ctx, c.Marker)
	if err != nil {
		return "", err
	}
	if id == "" {
		return t.Create(ctx, c.Body)
	}
	return id, t.Replace(ctx, id, c.Body)
}

// maxPages limits the pages of a list.
const maxPages = 30

// ErrManyPages reports that a list has more pages than [Pages] reads.
var ErrManyPages = errors.New("the forge's list has too many pages")

// Pages reads a list page by page, until each returns false. A page is what a path returns. It names
// the next one in its method NextPage if it has that, and else in the header Link.
func Pages[T any](ctx context.Context, c *Client, path string, each func(page T) (more bool, err error)) error {
	for range maxPages {
		var page T
		res, err := c.Get(ctx, path, &page)
		if err != nil {
			return err
		}
		more, err := each(page)
		next := res.Next
		if p, ok := any(page).(interface{ NextPage() string }); ok {
			next = p.NextPage()
		}
		if err != nil || !more || next == "" {
			return err
		}
		path = next
	}
	return ErrManyPages
}
