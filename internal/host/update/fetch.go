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

	"workflowagent/internal/host/release"
	"workflowagent/internal/sys/durable"
)

// Size limits in bytes. An archive has about 40 MB.
const (
	maxSmall   = 256 << 10
	maxList    = 16 << 20
	maxArchive = 512 << 20
)

// stallTime is how long a request may receive no data. Tests reduce it.
var stallTime = 30 * time.Second

var (
	errStalled  = errors.New("the server sent nothing for too long")
	errTooLarge = errors.New("the file is larger than any file of a release")
)

// client returns a client that limits the size of each response. The caller's context limits the
// duration of transfers.
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

// careful is a transport that aborts a response that stalls or is too large.
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

// get opens a file at an HTTP URL. size is -1 if it is unknown.
func get(ctx context.Context, client *http.Client, from *url.URL) (body io.ReadCloser, size int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, 0, err
	}
	// Without this header, the client would decompress an archive if the server declares the
	// archive's compression as a content encoding. The checksum would then not match.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", userAgent)
	resp, err := client.Do(req)
	if err != nil {
		return nil, 0, err // the error contains the URL, without its password
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

// readSmall reads a small file and closes it.
func readSmall(file io.ReadCloser) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, maxSmall+1))
	if err == nil && len(data) > maxSmall {
		err = errTooLarge
	}
	return data, errors.Join(err, file.Close())
}

// ErrReplay is returned if a mirror serves an older state than it did before.
var ErrReplay = errors.New("the mirror serves an older state than before")

// seen is an entry of the memory file. It describes the newest state of one channel at one release
// URL.
type seen struct {
	Home      string    `json:"home"`
	Channel   string    `json:"channel"`
	Version   string    `json:"version"`
	Published time.Time `json:"published"`
}

// remember compares a verified channel file with the newest known state, and records it. The
// publisher can withdraw a release by publishing a later channel file with a lower version. An
// agent never installs the lower version.
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
	// The file is not a secret, and both accounts that check for updates must be able to read it.
	if err := durable.WriteFile(path, text, 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("recording the state of the mirror: %w", err)
	}
	return nil
}
