package update

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/google/renameio/v2"

	"workflowagent/internal/durable"
	"workflowagent/internal/host/release"
)

// Limits in bytes. Archives have about 40 MB.
const (
	maxSmall   = 256 << 10
	maxList    = 16 << 20
	maxArchive = 512 << 20
)

// stallTime is how long a request may receive nothing. Tests lower it.
var stallTime = 30 * time.Second

var (
	errStalled  = errors.New("the server sent nothing for too long")
	errTooLarge = errors.New("the file is larger than any file of a release")
)

// client returns a client that limits every response. The caller's context limits whole transfers.
func (f *Finder) client(limit int64) *http.Client {
	next := http.DefaultTransport
	if f.Client != nil && f.Client.Transport != nil {
		next = f.Client.Transport
	}
	return &http.Client{Transport: careful{next: next, limit: limit}, CheckRedirect: checkRedirect}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("too many redirects")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("the server redirects from https to " + req.URL.Scheme)
	}
	return nil
}

// careful is a transport that aborts responses that stall or are too large.
type careful struct {
	next  http.RoundTripper
	limit int64
}

func (c careful) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	resp, err := c.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		cancel(nil)
		return nil, stalled(ctx, err)
	}
	timer.Reset(stallTime)
	resp.Body = &carefulBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, left: c.limit}
	return resp, nil
}

func stalled(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

type carefulBody struct {
	io.ReadCloser

	ctx    context.Context //nolint:containedctx // the context of one request
	cancel context.CancelCauseFunc
	timer  *time.Timer
	left   int64
}

// Read restarts the stall timer and enforces the size limit.
func (b *carefulBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errTooLarge
	}
	if n > 0 {
		b.timer.Reset(stallTime)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = stalled(b.ctx, err)
	}
	return n, err
}

func (b *carefulBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// get opens a file of a mirror. The size is -1 if unknown.
func get(ctx context.Context, client *http.Client, from *url.URL) (body io.ReadCloser, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	// Otherwise the client would unpack an archive whose compression the server declares as an
	// encoding of the response, and no checksum would match.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", userAgent)
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err // names the URL, without a password
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, 0, statusError{url: from.Redacted(), status: resp.Status, code: resp.StatusCode}
	}
	return resp.Body, resp.ContentLength, nil
}

const userAgent = "customer-managed-workflow-agent"

type statusError struct {
	url, status string
	code        int
}

func (e statusError) Error() string { return fmt.Sprintf("GET %s: %s", e.url, e.status) }

func (e statusError) Is(target error) bool {
	return target == ErrNotFound && (e.code == http.StatusNotFound || e.code == http.StatusGone)
}

// readSmall reads and closes a small file.
func readSmall(file io.ReadCloser) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, maxSmall+1))
	if err == nil && len(data) > maxSmall {
		err = errTooLarge
	}
	return data, errors.Join(err, file.Close())
}

// ErrReplay is returned if a mirror serves an older state than before.
var ErrReplay = errors.New("the mirror serves an older state than before")

// seen is the entry for one channel of one home in a memory file.
type seen struct {
	Home      string    `json:"home"`
	Channel   string    `json:"channel"`
	Version   string    `json:"version"`
	Published time.Time `json:"published"`
}

// remember compares a verified channel file with the newest one seen, and records it. The publisher
// may withdraw a release with a later file that names a lower version, which is never installed.
func remember(path, home, channel string, now release.Channel) error {
	if path == "" {
		return nil
	}
	known := map[string]seen{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the last seen state of the mirror: %w; remove %s if you trust the mirror", err, path)
	}
	key := fmt.Sprintf("%.8x", sha256.Sum256([]byte(home+"\x00"+channel)))
	before, ok := known[key]
	older := now.Published.Before(before.Published) || now.Published.Equal(before.Published) && now.Version != before.Version
	if ok && older {
		return fmt.Errorf("%w: its %s channel is at %s of %s, and was at %s of %s; nothing was changed", ErrReplay, channel,
			now.Version, now.Published.Format(time.RFC3339), before.Version, before.Published.Format(time.RFC3339))
	}
	latest := seen{Home: home, Channel: channel, Version: now.Version, Published: now.Published.UTC()}
	if ok && latest.Version == before.Version && latest.Published.Equal(before.Published) {
		return nil
	}
	known[key] = latest
	text, err = json.MarshalIndent(known, "", "  ")
	if err != nil {
		return err
	}
	// Not a secret, and readable for both accounts that check for updates.
	if err := durable.WriteFile(path, text, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("recording the state of the mirror: %w", err)
	}
	return nil
}
