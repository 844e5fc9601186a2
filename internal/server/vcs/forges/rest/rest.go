// Package rest calls the JSON APIs of forges: it authenticates, retries, follows pages and explains
// failures in the same way for all of them.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/retry"
	"workflowagent/internal/server/outbound"
)

// reads is the policy of requests that change nothing.
var reads = retry.Policy{First: 500 * time.Millisecond, Max: 5 * time.Second, Tries: 3}

// Client calls the API of a forge.
type Client struct {
	Peer *outbound.Peer
	// Base is the URL that precedes all paths, with the origin of the peer.
	Base string
	// Header returns the headers of each request, with the credential.
	Header func(ctx context.Context) (map[string]string, error)
}

// Response is a successful response without its body.
type Response struct {
	Status int
	Header map[string][]string
	// Next is the URL of the next page, or "".
	Next string
}

// Get reads a document into a value. path is below the client's base, or a URL from
// [Response.Next]. The value remains unchanged if the response is 304. Get tries again if the forge
// failed or cannot be reached.
func (c *Client) Get(ctx context.Context, path string, into any) (Response, error) {
	return c.get(ctx, path, nil, into)
}

// GetIfChanged is like [Client.Get], for a document that was read before with an entity tag.
func (c *Client) GetIfChanged(ctx context.Context, path, tag string, into any) (Response, error) {
	if tag == "" {
		return c.Get(ctx, path, into)
	}
	return c.get(ctx, path, map[string]string{"If-None-Match": tag}, into)
}

func (c *Client) get(ctx context.Context, path string, header map[string]string, into any) (res Response, err error) {
	err = reads.Do(ctx, again, func() error {
		res, err = c.call(ctx, "GET", path, header, nil, into)
		return err
	})
	return res, err
}

// again reports whether the same request can succeed later.
func again(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status >= 500 && e.Status != 501
	}
	_, unreachable := errors.AsType[*unreachableError](err)
	return unreachable
}

// Send sends a document, and reads the response into a value unless it is nil. It does not retry,
// because the forge may have acted although its response was lost.
func (c *Client) Send(ctx context.Context, method, path string, body, into any) (Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return Response{}, fmt.Errorf("encoding the request: %w", err)
		}
	}
	return c.call(ctx, method, path, nil, data, into)
}

func (c *Client) call(ctx context.Context, method, path string, extra map[string]string, body []byte, into any) (Response, error) {
	header := map[string]string{"Accept": "application/json", "User-Agent": "workflow-server"}
	if c.Header != nil {
		own, err := c.Header(ctx)
		if err != nil {
			return Response{}, err
		}
		maps.Copy(header, own)
	}
	maps.Copy(header, extra)
	if body != nil && header["Content-Type"] == "" {
		header["Content-Type"] = "application/json"
	}
	address := path
	if !strings.Contains(path, "://") {
		address = c.Base + path
	}
	call := outbound.Call{Method: method, URL: address, Header: header, Body: body}
	answer, err := c.Peer.Do(ctx, call)
	if err == nil && (answer.Status == 301 || answer.Status == 302) {
		// A forge refuses a change under the old name of a repository, and names the new address.
		if call.URL, err = resolve(address, answer.Header["Location"]); err == nil {
			answer, err = c.Peer.Do(ctx, call)
		}
	}
	if err != nil {
		return Response{}, &unreachableError{err}
	}
	res := Response{Status: answer.Status, Header: answer.Header}
	if answer.Status == 304 {
		return res, nil
	}
	if err := StatusError(answer); err != nil {
		return res, err
	}
	res.Next = onOrigin(address, nextPage(answer.Header["Link"]))
	if into == nil {
		return res, nil
	}
	if err := json.Unmarshal(answer.Body, into); err != nil {
		return res, errors.New("the forge's response is not the documented JSON: is its address right?")
	}
	return res, nil
}

func resolve(address string, location []string) (string, error) {
	base, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	to, err := base.Parse(strings.Join(location, ""))
	if err != nil {
		return "", errors.New("the forge redirected the request to an invalid address")
	}
	return to.String(), nil
}

// unreachableError marks an error of the network.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// nextPage returns the next URL of a Link header.
func nextPage(header []string) string {
	for link := range strings.SplitSeq(strings.Join(header, ","), ",") {
		target, parameters, _ := strings.Cut(strings.TrimSpace(link), ";")
		if strings.Contains(parameters, `rel="next"`) {
			return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(target), "<"), ">")
		}
	}
	return ""
}

// onOrigin returns the address of the page after the one at address. A forge writes the address that
// its administrator has set for users, but this server may reach it under another one, which then
// remains: only the query tells pages apart.
func onOrigin(address, next string) string {
	from, err := url.Parse(address)
	to, err2 := url.Parse(next)
	if err != nil || err2 != nil || next == "" || !to.IsAbs() || from.Scheme == to.Scheme && from.Host == to.Host {
		return next
	}
	from.RawQuery = to.RawQuery
	return from.String()
}

// Path joins the elements of a path, escaped, after a slash each.
func Path(elements ...string) string {
	var b strings.Builder
	for _, e := range elements {
		b.WriteString("/" + url.PathEscape(e))
	}
	return b.String()
}

// maxNames bounds the list of [AddNames], whose time grows with its square. A forge can send more than
// half a million names in one answer.
const maxNames = 10_000

// AddNames appends the names that a list does not contain yet, except empty ones. A list with more names
// than the caller accepts gets no others.
func AddNames(list []string, names ...string) []string {
	for _, name := range names {
		if len(list) <= maxNames && name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// Trim returns text without space around it and cut to a number of characters.
func Trim(text string, limit int) string {
	text = strings.TrimSpace(string(bytes.ToValidUTF8([]byte(text), nil)))
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}
