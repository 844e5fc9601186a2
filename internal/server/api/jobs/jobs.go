// Package jobs serves the routes for agents and runners.
package jobs

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"workflowagent/internal/protocol"
	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/budget"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/joblog"
	"workflowagent/internal/server/policies/evaluations"
	"workflowagent/internal/workflow"
)

// Bounds of one log request, in bytes.
const (
	maxLogSent     = 4 << 20
	maxLogInflated = 8 << 20
)

// calls are what the runners and agents of a type of job call.
type calls interface {
	Definition(ctx context.Context, p identity.Principal, jobID string) (*workflow.JobDefinition, error)
	Heartbeat(ctx context.Context, p identity.Principal, jobID string, r protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error)
	StepStatus(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.StepStatusRequest) error
	PutLog(ctx context.Context, p identity.Principal, jobID string, step int, offset int64, framed []byte) (ack protocol.LogAck, gap bool, err error)
	PostLines(ctx context.Context, p identity.Principal, jobID string, step int, r protocol.LogLines) error
	Result(ctx context.Context, p identity.Principal, jobID string, r protocol.ResultRequest) error
}

type jobRoutes struct {
	deployments *deployments.Service
	evaluations *evaluations.Service
}

// of returns the service of the caller's type of job.
func (j *jobRoutes) of(r *http.Request) calls {
	if web.Principal(r).DeploymentID == "" {
		return j.evaluations
	}
	return j.deployments
}

func (j *jobRoutes) register(rt *web.Router) {
	const base = "/api/workflow/jobs/{jobID}"
	rt.Authed(http.MethodGet, base, web.Runners, j.definition)
	rt.Authed(http.MethodPost, base+"/heartbeat", web.Runners, j.heartbeat)
	rt.Authed(http.MethodPost, base+"/oidc-token", web.Runners, j.identityToken)
	rt.Authed(http.MethodPost, base+"/result", web.Runners, j.result)
	rt.Authed(http.MethodPatch, base+"/{step}/status", web.Runners, j.stepStatus)
	rt.Authed(http.MethodPost, base+"/{step}/logs", web.Runners, j.lines)
	rt.Authed(http.MethodPut, base+"/{step}/log", web.Runners, j.log)
}

func (j *jobRoutes) definition(w http.ResponseWriter, r *http.Request) error {
	def, err := j.of(r).Definition(r.Context(), web.Principal(r), web.Param(r, "jobID"))
	return web.Answer(w, r, def, err)
}

func (j *jobRoutes) heartbeat(w http.ResponseWriter, r *http.Request) error {
	var req protocol.HeartbeatRequest
	if err := request.DecodeOptional(w, r, &req); err != nil {
		return err
	}
	resp, err := j.of(r).Heartbeat(r.Context(), web.Principal(r), web.Param(r, "jobID"), req)
	return web.Answer(w, r, resp, err)
}

func (j *jobRoutes) identityToken(w http.ResponseWriter, r *http.Request) error {
	var req protocol.IdentityTokenRequest
	if err := request.DecodeOptional(w, r, &req); err != nil {
		return err
	}
	if web.Principal(r).DeploymentID == "" {
		return fault.Forbidden("policy evaluations get no identity tokens")
	}
	token, err := j.deployments.IdentityToken(r.Context(), web.Principal(r), web.Param(r, "jobID"), req.Audience)
	if limited, ok := errors.AsType[*issuer.LimitError](err); ok {
		// Not 429: the caller has a valid credential, and clients repeat only 5xx.
		return &web.Error{Status: http.StatusServiceUnavailable, RetryAfter: limited.Wait, Message: limited.Error()}
	}
	return web.Answer(w, r, protocol.IdentityToken{Token: token.Text, ExpiresAt: token.ExpiresAt}, err)
}

func (j *jobRoutes) stepStatus(w http.ResponseWriter, r *http.Request) error {
	step, err := stepParam(r)
	if err != nil {
		return err
	}
	var req protocol.StepStatusRequest
	if err := request.DecodeDocument(w, r, &req); err != nil {
		return err
	}
	return web.Answer(w, r, struct{}{}, j.of(r).StepStatus(r.Context(), web.Principal(r), web.Param(r, "jobID"), step, req))
}

func (j *jobRoutes) lines(w http.ResponseWriter, r *http.Request) error {
	step, err := stepParam(r)
	if err != nil {
		return err
	}
	var req protocol.LogLines
	if err := request.DecodeDocument(w, r, &req); err != nil {
		return err
	}
	return web.Answer(w, r, struct{}{}, j.of(r).PostLines(r.Context(), web.Principal(r), web.Param(r, "jobID"), step, req))
}

// logConflict is the body of a 409 response to raw log: the offset from which to continue, and the
// error in the form of the public API.
type logConflict struct {
	protocol.LogAck
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (j *jobRoutes) log(w http.ResponseWriter, r *http.Request) error {
	step, err := stepParam(r)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil {
		return fault.Invalid("the query parameter offset must be a non-negative integer")
	}
	framed, err := request.Read(w, r, request.Bounds{Sent: maxLogSent, Inflated: maxLogInflated})
	if err != nil {
		return err
	}
	defer budget.Reuse(framed)
	ack, gap, err := j.of(r).PutLog(r.Context(), web.Principal(r), web.Param(r, "jobID"), step, offset, framed)
	if err != nil {
		return err
	}
	if gap {
		return web.WriteJSON(w, r, http.StatusConflict, logConflict{
			ack, http.StatusConflict,
			web.Message(http.StatusConflict, "log before offset "+strconv.FormatInt(offset, 10)+" is missing; continue from received"),
		})
	}
	return web.WriteJSON(w, r, http.StatusOK, ack)
}

func (j *jobRoutes) result(w http.ResponseWriter, r *http.Request) error {
	var req protocol.ResultRequest
	if err := request.DecodeDocument(w, r, &req); err != nil {
		return err
	}
	err := j.of(r).Result(r.Context(), web.Principal(r), web.Param(r, "jobID"), req)
	if missing, ok := errors.AsType[*joblog.Missing](err); ok {
		return web.WriteJSON(w, r, http.StatusConflict, protocol.ResultConflict{
			Code: http.StatusConflict, Message: web.Message(http.StatusConflict, missing.Error()), Missing: missing.Logs,
		})
	}
	return web.Answer(w, r, struct{}{}, err)
}

func stepParam(r *http.Request) (int, error) {
	n, err := strconv.Atoi(web.Param(r, "step"))
	if err != nil {
		return 0, fault.Invalid("the step in the path must be a number")
	}
	return n, nil
}
