// Package forges serves the routes of integrations with forges, and receives the deliveries that
// forges send.
package forges

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/attempts"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

const (
	// maxLarge is the maximum size of the deliveries of forges that send large ones, and maxSmall of
	// those of the others.
	maxLarge, maxSmall = 10 << 20, 1 << 20
	// grace is the time in which the first part of a body must arrive, minRate the number of bytes per
	// second in which the rest must, and maxRead the time in which all of it must. Forges themselves
	// wait about as long.
	grace, minRate, maxRead = 2 * time.Second, 64 << 10, 10 * time.Second
	// maxFailures is the number of failures per minute of one source. A delivery that is wrong, or
	// that does not arrive in time, counts as one. Each second for which a body arrives counts as
	// perSecond more, also if the delivery is authentic, because it occupies a slot.
	maxFailures, perSecond = 60, 5
)

type routes struct {
	integrations *integrations.Service
	dispatch     *dispatch.Service
	console      links.Console
	admission    *admission
	grace        time.Duration
	failures     *attempts.Counter
}

// receiver receives the deliveries of a route.
type receiver struct {
	// limit is the maximum size of a body.
	limit int64
	// integration returns the id to which a request claims to belong: that of an integration, or of a
	// GitHub App.
	integration func(*http.Request) string
	// expect returns an error unless the server has an integration with the id.
	expect func(ctx context.Context, id string) error
	accept func(ctx context.Context, id string, d vcs.Delivery) (dispatch.Outcome, error)
}

// Register adds the routes. Only administrators of the organization manage its integrations.
func Register(rt *web.Router, i *integrations.Service, d *dispatch.Service, console links.Console) {
	h := &routes{integrations: i, dispatch: d, console: console, admission: newAdmission(), grace: grace, failures: attempts.New(maxFailures)}
	named := func(header string) func(*http.Request) string {
		return func(r *http.Request) string { return r.Header.Get(header) }
	}
	of := func(key string, limit int64, id func(*http.Request) string) receiver {
		return receiver{
			limit: limit, integration: id,
			expect: func(ctx context.Context, id string) error { return d.Expect(ctx, key, id) },
			accept: func(ctx context.Context, id string, delivery vcs.Delivery) (dispatch.Outcome, error) {
				return d.Receive(ctx, key, id, delivery)
			},
		}
	}
	for path, key := range map[string]string{
		"/workflow/github/{id}": vcs.ProviderGitHub, "/workflow/gitlab/{id}": vcs.ProviderGitLab, "/workflow/gitea/{id}": vcs.FlavorGitea,
		"/workflow/bitbucket/{id}": vcs.ProviderBitbucket, "/workflow/azure-devops/{id}": vcs.ProviderAzure,
	} {
		limit := int64(maxSmall)
		if key == vcs.ProviderGitHub || key == vcs.ProviderGitLab {
			limit = maxLarge
		}
		rt.Public(http.MethodPost, path, h.receive(of(key, limit, func(r *http.Request) string { return web.Param(r, "id") })))
	}
	rt.Public(http.MethodPost, "/workflow/github", h.receive(receiver{
		limit: maxLarge, integration: named("X-GitHub-Hook-Installation-Target-ID"), expect: d.ExpectApp, accept: d.ReceiveApp,
	}))
	rt.Public(http.MethodPost, "/workflow/generic-vcs", h.receive(of(vcs.FlavorGit, maxSmall, named("X-Generic-VCS-Integration-ID"))))
	h.registerIntegrations(rt)
	h.registerEvents(rt)
}

// answer is the body of the answer to a delivery.
type answer struct {
	Accepted int        `json:"accepted"`
	Ignored  vcs.Reason `json:"ignored,omitempty"`
	Detail   string     `json:"detail,omitempty"`
}

// receive returns a handler of deliveries. Whatever the server ignores is a success, because forges
// disable webhooks that fail. The body of a delivery to an unknown integration is not read.
func (h *routes) receive(of receiver) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		// Without this header, the server would wait for the rest of a body before it refuses it.
		w.Header().Set("Connection", "close")
		from := web.Address(r)
		if !h.failures.Allowed(from, time.Now()) {
			return &web.Error{Status: http.StatusTooManyRequests, RetryAfter: time.Minute, Message: "Too Many Requests: too many deliveries from this address were wrong"}
		}
		id := of.integration(r)
		out, err := h.read(w, r, of, id, from)
		if err != nil {
			return err
		}
		h.admission.know(from, time.Now())
		return web.WriteJSON(w, r, http.StatusAccepted, answer{out.Accepted, out.Ignored, out.Detail})
	}
}

// read reads and accepts a delivery. It counts the failures of its source.
func (h *routes) read(w http.ResponseWriter, r *http.Request, of receiver, id, from string) (out dispatch.Outcome, err error) {
	var took time.Duration
	defer func() {
		if n := failuresOf(took, err); n > 0 {
			h.failures.Fail(from, n, time.Now())
		}
	}()
	if err := of.expect(r.Context(), id); err != nil {
		return out, err
	}
	release, err := h.admission.take(r.Context(), id, from)
	if err != nil {
		return out, err
	}
	defer release()
	began := time.Now()
	conn := http.NewResponseController(w)
	body, err := io.ReadAll(&timely{Reader: http.MaxBytesReader(w, r.Body, of.limit), conn: conn, began: began, grace: h.grace})
	took = time.Since(began)
	if err != nil {
		return out, bodyError(err)
	}
	w.Header().Del("Connection")
	d := vcs.Delivery{Header: make(map[string]string, len(r.Header)), Body: body}
	for name, values := range r.Header {
		d.Header[strings.ToLower(name)] = values[0]
	}
	return of.accept(r.Context(), id, d)
}

// failuresOf returns the number of failures for which a delivery counts whose body took a time to
// arrive.
func failuresOf(took time.Duration, err error) int {
	n := int(took/time.Second) * perSecond
	if errors.Is(err, os.ErrDeadlineExceeded) || fault.KindOf(err) == fault.KindUnauthenticated {
		n++
	}
	return n
}

// timely is a body that must arrive in time. Other code extends the deadline of each read.
type timely struct {
	io.Reader
	conn  *http.ResponseController
	began time.Time
	grace time.Duration
	bytes int64
}

// Read implements [io.Reader].
func (t *timely) Read(p []byte) (int, error) {
	_ = t.conn.SetReadDeadline(t.deadline()) // writers in tests have no deadlines
	n, err := t.Reader.Read(p)
	t.bytes += int64(n)
	return n, err
}

// deadline returns the time at which the next part must arrive.
func (t *timely) deadline() time.Time {
	allowed := t.grace + time.Duration(float64(t.bytes)/minRate*float64(time.Second))
	return t.began.Add(min(allowed, maxRead))
}

func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return fault.Wrap(fault.KindInvalid, err, "Bad Request: the body could not be read completely")
}

// decode reads a body that can be missing.
func decode(w http.ResponseWriter, r *http.Request) (b body, err error) {
	return b, request.DecodeOptional(w, r, &b)
}
