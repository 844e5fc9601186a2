package rest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// Resource is a place in the API of a forge, for example a repository, its list of pull requests or one of
// these. All requests to a resource with a name that no repository has return an error that wraps
// [vcs.ErrForeign].
type Resource struct {
	client      *Client
	path, query string
	err         error
}

// At returns the resource with a path. Elements are escaped.
func (c *Client) At(elements ...string) Resource { return Resource{client: c, path: Path(elements...)} }

// Repository returns the resource of a repository with a name, below a path.
func (c *Client) Repository(path, name string) Resource {
	return Resource{client: c, path: path + Path(strings.Split(name, "/")...), err: CheckName(name)}
}

// Nowhere returns a resource whose requests return an error.
func Nowhere(err error) Resource { return Resource{err: err} }

// CheckName returns an error that wraps [vcs.ErrForeign] unless a repository's name has the form of
// [workflow.RepositoryName], with at least two elements.
func CheckName(name string) error {
	if err := workflow.CheckRepositoryName(name, 2); err != nil {
		return fmt.Errorf("%w: %w", vcs.ErrForeign, err)
	}
	return nil
}

// At returns a resource below this one. Elements are escaped.
func (r Resource) At(elements ...string) Resource {
	r.path += Path(elements...)
	return r
}

// Query returns the resource with further parameters, which are encoded.
func (r Resource) Query(parameters string) Resource {
	r.query += "&" + parameters
	return r
}

func (r Resource) address() string {
	if r.query == "" {
		return r.path
	}
	return r.path + "?" + r.query[1:]
}

// Get is [Client.Get] for a resource.
func (r Resource) Get(ctx context.Context, into any) error {
	_, err := r.GetIfChanged(ctx, "", into)
	return err
}

// GetIfChanged is [Client.GetIfChanged] for a resource.
func (r Resource) GetIfChanged(ctx context.Context, tag string, into any) (Response, error) {
	if r.err != nil {
		return Response{}, r.err
	}
	return r.client.GetIfChanged(ctx, r.address(), tag, into)
}

// Send is [Client.Send] for a resource.
func (r Resource) Send(ctx context.Context, method string, body, into any) error {
	if r.err != nil {
		return r.err
	}
	_, err := r.client.Send(ctx, method, r.address(), body, into)
	return err
}

// Create sends a POST request and returns the id of what it creates.
func (r Resource) Create(ctx context.Context, body any) (id string, err error) {
	var created struct {
		ID int64 `json:"id"`
	}
	if err := r.Send(ctx, "POST", body, &created); err != nil {
		return "", err
	}
	return strconv.FormatInt(created.ID, 10), nil
}

// Each reads the pages of a list, as [Pages] does.
func Each[T any](ctx context.Context, list Resource, each func(page T) (more bool, err error)) error {
	if list.err != nil {
		return list.err
	}
	return Pages(ctx, list.client, list.address(), each)
}

// First returns what find returns for the first page in which it finds something, or "".
func First[T any](ctx context.Context, list Resource, find func(page T) string) (found string, err error) {
	err = Each(ctx, list, func(page T) (bool, error) {
		found = find(page)
		return found == "", nil
	})
	return found, err
}

// EnsureHook implements [vcs.Hooker] for a list of webhooks, which it reads with a query. find returns the id
// of the webhook in a page, or "". An existing webhook is replaced by a request with a method.
func EnsureHook[T any](ctx context.Context, hooks Resource, query string, find func(page T) string, method string, body any) error {
	id, err := First(ctx, hooks.Query(query), find)
	switch {
	case err != nil:
	case id == "":
		err = hooks.Send(ctx, "POST", body, nil)
	default:
		err = hooks.At(id).Send(ctx, method, body, nil)
	}
	return fault.While(err, "registering the webhook")
}
