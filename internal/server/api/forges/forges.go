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

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity/attempts"
	"workflowagent/internal/server/links"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

const (
	// maxLarge is the maximum size of the deliveries of forges that send large ones, and maxSmall of
	// those of the others.
	maxLarge, maxSmall = 10 << 20, 1 << 20
	// maxRead is the time in which a body must arrive. Forges themselves wait about as long.
	maxRead = 10 * time.Second
	// maxFailures is the number of failures per minute of one integration, from all senders: the
	// deliveries of all forges can come from the address of one proxy. A delivery that is wrong, or that
	// does not arrive in time, counts as one. Each second for which a body arrives counts as perSecond
	// more, also if the delivery is authentic, because it occupies a slot. After that, wrong deliveries
	// are answered 429, and bodies must arrive faster; authentic ones are accepted as before.
	maxFailures, perSecond = 60, 5
	// maxSlow is the number of failures per minute of all slow bodies together, after which all bodies
	// must arrive faster.
	maxSlow = 4 * maxFailures
)

// pace is how fast a body must arrive: its first part within grace, and the rest at a minimum rate in
// bytes per second.
type pace struct {
	grace time.Duration
	rate  float64
}

// patient is the usual pace, and strict the one after too many failures. It suffices for forges and for
// proxies that buffer bodies.
var patient, strict = pace{2 * time.Second, 64 << 10}, pace{500 * time.Millisecond, 1 << 20}

type routes struct {
	integrations *integrations.Service
	dispatch     *dispatch.Service
	console      links.Console
	admission    *admission
	patient      pace
	failures     *attempts.Counter // by integration
	slow         *attempts.Counter // of all integrations together
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
	h := &routes{integrations: i, dispatch: d, console: console, admission: newAdmission(), patient: patient, failures: attempts.New(maxFailures), slow: attempts.New(maxSlow)}
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
		rt.Public(http.MethodPost, path, h.deliveryHandler(of(key, limit, func(r *http.Request) string { return web.Param(r, "id") })))
	}
	rt.Public(http.MethodPost, "/workflow/github", h.deliveryHandler(receiver{
		limit: maxLarge, integration: named("X-GitHub-Hook-Installation-Target-ID"), expect: d.ExpectApp, accept: d.ReceiveApp,
	}))
	rt.Public(http.MethodPost, "/workflow/generic-vcs", h.deliveryHandler(of(vcs.FlavorGit, maxSmall, named("X-Generic-VCS-Integration-ID"))))
	h.registerIntegrations(rt)
	h.registerEvents(rt)
}

// answer is the body of the answer to a delivery.
type answer struct {
	Accepted int        `json:"accepted"`
	Ignored  vcs.Reason `json:"ignored,omitempty"`
	Detail   string     `json:"detail,omitempty"`
}

// deliveryHandler returns a handler of deliveries. Whatever the server ignores is a success, because forges
// disable webhooks that fail. The body of a delivery to an unknown integration is not read.
func (h *routes) deliveryHandler(of receiver) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		// Without this header, the server would wait for the rest of a body before it refuses it.
		w.Header().Set("Connection", "close")
		id, from := of.integration(r), web.Address(r)
		if err := of.expect(r.Context(), id); err != nil {
			return err
		}
		out, took, err := h.read(w, r, of, id, from)
		if !h.count(id, took, err, time.Now()) && fault.KindOf(err) == fault.KindUnauthenticated {
			return &web.Error{
				Status: http.StatusTooManyRequests, RetryAfter: time.Minute,
				Message: "the delivery is not signed with the integration's secret, as others in this minute",
			}
		}
		if err != nil {
			return err
		}
		h.admission.remember(from, time.Now())
		return web.WriteJSON(w, r, http.StatusAccepted, answer{out.Accepted, out.Ignored, out.Detail})
	}
}

// read reads and accepts a delivery. It also returns how long its body took to arrive.
func (h *routes) read(w http.ResponseWriter, r *http.Request, of receiver, id, from string) (out dispatch.Outcome, took time.Duration, err error) {
	release, err := h.admission.acquire(r.Context(), id, from)
	if err != nil {
		return out, 0, err
	}
	defer release()
	began := time.Now()
	conn := http.NewResponseController(w)
	body, err := io.ReadAll(&timely{Reader: http.MaxBytesReader(w, r.Body, of.limit), conn: conn, began: began, pace: h.pace(id, began)})
	took = time.Since(began)
	if err != nil {
		return out, took, bodyError(err)
	}
	w.Header().Del("Connection")
	d := vcs.Delivery{Header: make(map[string]string, len(r.Header)), Body: body}
	for name, values := range r.Header {
		d.Header[strings.ToLower(name)] = values[0]
	}
	out, err = of.accept(r.Context(), id, d)
	return out, took, err
}

// pace returns how fast the body of a delivery to an integration must arrive.
func (h *routes) pace(id string, now time.Time) pace {
	if h.failures.Allowed(id, now) && h.slow.Allowed("", now) {
		return h.patient
	}
	return strict
}

// count counts the failures of a delivery. It reports whether they were allowed.
func (h *routes) count(id string, took time.Duration, err error, now time.Time) bool {
	slow, wrong := failuresOf(took, err)
	if slow > 0 {
		h.slow.Fail("", slow, now)
	}
	return slow+wrong == 0 || h.failures.Fail(id, slow+wrong, now)
}

// failuresOf returns the number of failures for which a delivery counts whose body took a time to
// arrive: because it was slow, and because it was wrong.
func failuresOf(took time.Duration, err error) (slow, wrong int) {
	slow = int(took/time.Second) * perSecond
	if errors.Is(err, os.ErrDeadlineExceeded) {
		slow++
	}
	if fault.KindOf(err) == fault.KindUnauthenticated {
		wrong = 1
	}
	return slow, wrong
}

// timely is a body that must arrive in time. Other code extends the deadline of each read.
type timely struct {
	io.Reader
	conn  *http.ResponseController
	began time.Time
	pace
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
	allowed := t.grace + time.Duration(float64(t.bytes)/t.rate*float64(time.Second))
	return t.began.Add(min(allowed, maxRead))
}

func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return fault.Wrap(fault.KindInvalid, err, "the body could not be read completely")
}
