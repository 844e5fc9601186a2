// Package forges serves the routes of integrations with forges, and receives the deliveries that
// forges send.
package forges

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
)

const (
	// maxBodies is the number of deliveries that are read at the same time.
	maxBodies = 8
	// maxWait is the time for which a delivery waits for others.
	maxWait = 5 * time.Second
	// maxRead is the time in which a body must arrive. Forges themselves wait about as long.
	maxRead = 10 * time.Second
	// maxLarge is the maximum size of the deliveries of forges that send large ones, and maxSmall of
	// those of the others.
	maxLarge, maxSmall = 10 << 20, 1 << 20
	// maxFailures is the number of deliveries per minute from one source that are verified although
	// each was wrong.
	maxFailures = 60
	// slow is the number of failures for which a body counts that does not arrive in time, because it
	// keeps others waiting.
	slow = 10
)

type routes struct {
	integrations *integrations.Service
	dispatch     *dispatch.Service
	bodies       chan struct{}
	maxRead      time.Duration
	failures     failures
}

// Register adds the routes. Only administrators of the organization manage its integrations.
func Register(rt *web.Router, i *integrations.Service, d *dispatch.Service) {
	h := &routes{integrations: i, dispatch: d, bodies: make(chan struct{}, maxBodies), maxRead: maxRead}
	for path, key := range map[string]string{
		"/workflow/github/{id}": vcs.ProviderGitHub, "/workflow/gitlab/{id}": vcs.ProviderGitLab, "/workflow/gitea/{id}": vcs.FlavorGitea,
		"/workflow/bitbucket/{id}": vcs.ProviderBitbucket, "/workflow/azure-devops/{id}": vcs.ProviderAzure,
	} {
		limit := int64(maxSmall)
		if key == vcs.ProviderGitHub || key == vcs.ProviderGitLab {
			limit = maxLarge
		}
		rt.Public(http.MethodPost, path, h.receive(limit, func(r *http.Request, d vcs.Delivery) (dispatch.Outcome, error) {
			return h.dispatch.Receive(r.Context(), key, web.Param(r, "id"), d)
		}))
	}
	rt.Public(http.MethodPost, "/workflow/github", h.receive(maxLarge, func(r *http.Request, d vcs.Delivery) (dispatch.Outcome, error) {
		return h.dispatch.ReceiveApp(r.Context(), d)
	}))
	rt.Public(http.MethodPost, "/workflow/generic-vcs", h.receive(maxSmall, func(r *http.Request, d vcs.Delivery) (dispatch.Outcome, error) {
		return h.dispatch.Receive(r.Context(), vcs.FlavorGit, d.Header["x-generic-vcs-integration-id"], d)
	}))
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
// disable webhooks that fail.
func (h *routes) receive(limit int64, accept func(*http.Request, vcs.Delivery) (dispatch.Outcome, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		from := web.Address(r)
		if !h.failures.allow(from, time.Now()) {
			return &web.Error{Status: http.StatusTooManyRequests, RetryAfter: time.Minute, Message: "Too Many Requests: too many deliveries from this address were wrong"}
		}
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		select {
		case h.bodies <- struct{}{}:
			defer func() { <-h.bodies }()
		case <-timer.C:
			return fault.New(fault.KindUnavailable, "Service Unavailable: the server reads too many deliveries at once")
		case <-r.Context().Done():
			return r.Context().Err()
		}
		conn := http.NewResponseController(w)
		body, err := io.ReadAll(until{http.MaxBytesReader(w, r.Body, limit), conn, time.Now().Add(h.maxRead)})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			h.failures.add(from, slow, time.Now())
		}
		if err != nil {
			return bodyError(err)
		}
		d := vcs.Delivery{Header: make(map[string]string, len(r.Header)), Body: body}
		for name, values := range r.Header {
			d.Header[strings.ToLower(name)] = values[0]
		}
		out, err := accept(r, d)
		if fault.KindOf(err) == fault.KindUnauthenticated {
			h.failures.add(from, 1, time.Now())
		}
		if err != nil {
			return err
		}
		return web.WriteJSON(w, r, http.StatusAccepted, answer{out.Accepted, out.Ignored, out.Detail})
	}
}

// until is a body that must arrive before a time. Other code extends the deadline of each read.
type until struct {
	io.Reader
	conn *http.ResponseController
	end  time.Time
}

// Read implements [io.Reader].
func (u until) Read(p []byte) (int, error) {
	_ = u.conn.SetReadDeadline(u.end) // writers in tests have no deadlines
	return u.Reader.Read(p)
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
