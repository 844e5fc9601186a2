package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// errGone reports that the server does not know a resource.
var errGone = errors.New("not found")

// client calls the server named by PULUMI_BACKEND_URL with the token in PULUMI_ACCESS_TOKEN.
type client struct {
	base  *url.URL
	token string
	http  *http.Client
}

func newClient() (*client, error) {
	base, err := url.Parse(os.Getenv("PULUMI_BACKEND_URL"))
	if err != nil || base.Host == "" {
		return nil, errors.New("PULUMI_BACKEND_URL is not a URL")
	}
	base.Path = "/api/" // the stock provider replaces the whole path
	return &client{base, os.Getenv("PULUMI_ACCESS_TOKEN"), &http.Client{Timeout: time.Minute}}, nil
}

// path joins escaped segments.
func path(segments ...string) string {
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}

// call sends body as JSON and decodes the response into out. Like the stock provider, it accepts an
// empty response and an error that is not JSON.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
	}
	text, _, err := c.exchange(ctx, method, path, sent, "application/vnd.pulumi+9")
	if err != nil || out == nil || len(bytes.TrimSpace(text)) == 0 {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the response to %s %s: %w", method, path, err)
	}
	return nil
}

// exchange sends a request and returns the response.
func (c *client) exchange(ctx context.Context, method, path string, sent []byte, accept string) ([]byte, http.Header, error) {
	ref, err := url.Parse(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the path %q: %w", path, err)
	}
	var body io.Reader
	if sent != nil {
		body = bytes.NewReader(sent)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.ResolveReference(ref).String(), body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Pulumi-Source", "provider")
	req.Header.Set("Authorization", "token "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		err = fmt.Errorf("reading the response to %s %s: %w", method, path, err)
	case res.StatusCode == http.StatusNotFound:
		err = fmt.Errorf("%s %s: %w: %s", method, path, errGone, message(text))
	case res.StatusCode >= 300:
		err = fmt.Errorf("%s %s: [%d] %s", method, path, res.StatusCode, message(text))
	}
	return text, res.Header, err
}

func message(text []byte) string {
	var e struct{ Message string }
	if json.Unmarshal(text, &e) == nil && e.Message != "" {
		return e.Message
	}
	return string(text)
}
