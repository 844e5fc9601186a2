package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/workflow"
)

const (
	lfsMedia    = "application/vnd.git-lfs+json"
	lfsBatch    = 100 // objects per request for addresses
	maxLFSReply = 4 << 20
	lfsStall    = 2 * time.Minute // without a byte
)

// lfsServer is the Git LFS API of a repository. Only requests to the repository's own origin carry
// the deployment's credentials.
type lfsServer struct {
	repo    *workflow.Repository
	login   *login
	client  *http.Client
	log     io.Writer
	private string
	noted   []string      // other servers in the log
	stall   time.Duration // after which a silent server counts as failed
}

func newLFSServer(repo *workflow.Repository, l *login, log io.Writer, redirects bool) *lfsServer {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = lfsStall
	s := &lfsServer{repo: repo, login: l, log: log, private: l.private, stall: lfsStall}
	s.client = &http.Client{Transport: transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) >= 5 {
			return errors.New("too many redirects")
		}
		if err := leaves(via[0].URL, req); err != nil || sameOrigin(via[0].URL, req.URL) {
			return err
		}
		target := req.URL.Scheme + "://" + req.URL.Host
		if !redirects {
			return fmt.Errorf("the server redirects to %s, and the agent's allowed_repositories permits no redirects", target)
		}
		s.note("redirects to", target)
		return nil
	}}
	return s
}

// leaves prepares a redirected request. On another origin it must use https, and gets none of the
// first request's headers.
func leaves(from *url.URL, req *http.Request) error {
	if sameOrigin(from, req.URL) {
		return nil
	}
	if req.URL.Scheme != "https" && from.Scheme == "https" {
		return errors.New("a redirect from https to " + req.URL.Scheme)
	}
	if req.Method != http.MethodGet {
		return errors.New("a redirect to another server: " + req.URL.Scheme + "://" + req.URL.Host)
	}
	req.Header = http.Header{}
	return nil
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host) }

// note writes to the log that files come from another server, once for each one.
func (s *lfsServer) note(how, origin string) {
	if !slices.Contains(s.noted, origin) {
		s.noted = append(s.noted, origin)
		fmt.Fprintf(s.log, "Git LFS: the server %s %s\n", how, origin)
	}
}

func (s *lfsServer) close() { s.client.CloseIdleConnections() }

// lfsError is a response with an error status.
type lfsError struct{ status int }

func (e *lfsError) Error() string {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "the server rejected the credentials, or requires credentials and the deployment has none: check the git authentication in the deployment settings"
	case http.StatusNotFound:
		return "the server has no Git LFS for this repository, or the credentials give no access to it"
	}
	return fmt.Sprintf("the server answered %d %s", e.status, http.StatusText(e.status))
}

// errDamaged means that an object's content differs from its hash.
var errDamaged = errors.New("the server sent another content than the pointer names")

// errSilent means that the server stopped sending.
var errSilent = errors.New("the server stopped sending")

// mayPass reports whether a failure may be temporary.
func mayPass(err error) bool {
	if failed, ok := errors.AsType[*lfsError](err); ok {
		return failed.status >= 500 || failed.status == http.StatusTooManyRequests
	}
	_, isNet := errors.AsType[*url.Error](err)
	return isNet || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errDamaged) || errors.Is(err, errSilent)
}

// fetch downloads objects, and calls use with each.
func (s *lfsServer) fetch(ctx context.Context, objects []object, use func(object, *os.File) error) error {
	for some := range slices.Chunk(objects, lfsBatch) {
		actions, err := s.addresses(ctx, some)
		if err != nil {
			return err
		}
		for i, o := range some {
			err := s.one(ctx, o, actions, use)
			if mayHaveExpired(err) {
				if actions, err = s.addresses(ctx, some[i:]); err == nil {
					err = s.one(ctx, o, actions, use)
				}
			}
			if err != nil {
				return fmt.Errorf("object %s: %w", o.oid, err)
			}
		}
	}
	return nil
}

// mayHaveExpired reports whether err can mean that an address was valid only for a limited time, which earlier
// transfers have used up. Servers of objects answer with various statuses.
func mayHaveExpired(err error) bool {
	failed, ok := errors.AsType[*lfsError](err)
	return ok && failed.status >= 400 && failed.status < 500
}

// addresses requests the addresses of objects, repeatedly if necessary.
func (s *lfsServer) addresses(ctx context.Context, objects []object) (actions map[string]lfsAction, err error) {
	err = s.retry(ctx, func() (err error) {
		actions, err = s.batch(ctx, objects)
		return err
	})
	return actions, err
}

func (s *lfsServer) retry(ctx context.Context, try func() error) error {
	return fetchRetry.Do(ctx, func(err error) bool {
		again := mayPass(err) && ctx.Err() == nil
		if again {
			fmt.Fprintf(s.log, "Git LFS: %v; retrying\n", err)
		}
		return again
	}, try)
}

type lfsAction struct {
	Href   string            `json:"href"`
	Header map[string]string `json:"header"`
}

// watch returns a context that ends when nothing is written to progress for a while.
func (s *lfsServer) watch(ctx context.Context) (watched context.Context, progress io.Writer, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.stall, func() { cancel(fmt.Errorf("%w for %s", errSilent, s.stall)) })
	return ctx, written(func() { timer.Reset(s.stall) }), func() {
		timer.Stop()
		cancel(nil)
	}
}

// batch requests the addresses of objects.
func (s *lfsServer) batch(ctx context.Context, objects []object) (map[string]lfsAction, error) {
	ctx, progress, end := s.watch(ctx)
	defer end()
	type wanted struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	request := struct {
		Operation string   `json:"operation"`
		Transfers []string `json:"transfers"`
		Objects   []wanted `json:"objects"`
	}{Operation: "download", Transfers: []string{"basic"}}
	for _, o := range objects {
		request.Objects = append(request.Objects, wanted{o.oid, o.size})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	address := strings.TrimSuffix(strings.TrimSuffix(s.repo.String(), "/"), ".git") + ".git/info/lfs/objects/batch"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", lfsMedia)
	req.Header.Set("Content-Type", lfsMedia)
	resp, err := s.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // read to the end or abandoned
	var reply struct {
		Objects []struct {
			OID     string `json:"oid"`
			Actions struct {
				Download *lfsAction `json:"download"`
			} `json:"actions"`
		} `json:"objects"`
	}
	text := io.TeeReader(io.LimitReader(resp.Body, maxLFSReply), progress)
	if err := json.NewDecoder(text).Decode(&reply); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the server sent no valid answer: %w", err)
	}
	actions := map[string]lfsAction{}
	for _, o := range reply.Objects {
		if o.Actions.Download != nil {
			actions[o.OID] = *o.Actions.Download
		}
	}
	return actions, nil
}

// one downloads an object to a temporary file, verifies it, and calls use.
func (s *lfsServer) one(ctx context.Context, o object, actions map[string]lfsAction, use func(object, *os.File) error) error {
	action, ok := actions[o.oid]
	if !ok {
		return errors.New("the server does not have the object")
	}
	file, err := os.CreateTemp(s.private, "lfs-")
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close() // only read from here on
		_ = os.Remove(file.Name())
	}()
	if err := s.retry(ctx, func() error { return s.download(ctx, o, action, file) }); err != nil {
		return err
	}
	return use(o, file)
}

func (s *lfsServer) download(ctx context.Context, o object, action lfsAction, file *os.File) error {
	ctx, progress, end := s.watch(ctx)
	defer end()
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, action.Href, http.NoBody)
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "https" && req.URL.Scheme != "http" {
		return errors.New("the server sent an address that is not usable")
	}
	if req.URL.Scheme == "http" && s.repo.Scheme == "https" {
		return errors.New("the server refers from https to http")
	}
	if origin := req.URL.Scheme + "://" + req.URL.Host; origin != s.repo.Origin() {
		s.note("stores files at", origin)
	}
	for name, value := range action.Header {
		req.Header.Set(name, value)
	}
	resp, err := s.do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // read to the end or abandoned
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum, progress), io.LimitReader(resp.Body, o.size+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case n != o.size || hex.EncodeToString(sum.Sum(nil)) != o.oid:
		return errDamaged
	}
	return nil
}

// do sends a request, with the deployment's credentials if it goes to the repository's origin and
// contains no others.
func (s *lfsServer) do(req *http.Request) (*http.Response, error) {
	a := s.login.answers
	if a.Password != "" && req.Header.Get("Authorization") == "" && req.URL.Scheme+"://"+req.URL.Host == a.Origin {
		req.SetBasicAuth(a.Username, a.Password)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if cause := context.Cause(req.Context()); errors.Is(cause, errSilent) {
			return nil, cause
		}
		if failed, ok := errors.AsType[*url.Error](err); ok {
			failed.URL = req.URL.Scheme + "://" + req.URL.Host // signed addresses are secret
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, &lfsError{resp.StatusCode}
	}
	return resp, nil
}

// written calls a function at each write.
type written func()

func (w written) Write(data []byte) (int, error) {
	w()
	return len(data), nil
}
