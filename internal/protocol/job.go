package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"workflowagent/internal/workflow"
)

// maxIdentityToken limits the length of an identity token, in bytes. Tokens are stored in
// environment variables, whose size is limited.
const maxIdentityToken = 32 << 10

// JobClient makes the calls of one job with the job's token. It makes one attempt per call. Except
// for Definition, it bypasses the circuit breaker, because the callers have their own deadlines.
type JobClient struct {
	client   *Client
	path     string
	token    string
	plain    atomic.Bool // the server has rejected compressed log
	gone     atomic.Bool // the server itself has responded with 410
	holder   string      // sent with each heartbeat
	refusals refusals
}

// Job returns a client for the calls of one job.
func (c *Client) Job(jobID, token string) *JobClient {
	return &JobClient{client: c, path: "/api/workflow/jobs/" + url.PathEscape(jobID), token: token}
}

func (j *JobClient) call(method, suffix string, body any) (call, error) {
	r := call{method: method, path: j.path + suffix, token: j.token, limit: maxSmallBody}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return call{}, fmt.Errorf("encoding %s %s: %w", method, r.path, err)
		}
		r.body = encoded
	}
	return r, nil
}

func (j *JobClient) send(ctx context.Context, kind string, r call) (answer, error) {
	a, err := j.client.send(ctx, r)
	refused, ok := errors.AsType[*APIError](err)
	switch {
	case err == nil:
		j.refusals.final(kind, 0)
		if isPage(a.header, a.body) {
			return answer{}, a.decode(r, new(any))
		}
		return a, nil
	case ok && (refused.origin == originUnknown || refused.origin == originServer && strange(refused.Code)):
		if refused.origin == originServer {
			refused.origin = originStranger
		} else {
			refused.origin = originJob
		}
		if j.refusals.final(kind, refused.Code) {
			refused.origin = originServer
		}
	}
	if Gone(err) {
		j.gone.Store(true)
	}
	return a, err
}

// strange reports whether even a signed response with this code can come from a server that does
// not know the job.
func strange(code int) bool {
	return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound
}

// Gone reports whether the server has responded with 410 to a call of the job. The caller must then
// start nothing for the job.
func (j *JobClient) Gone() bool { return j.gone.Load() }

// Signed reports whether the server is known to sign its responses.
func (j *JobClient) Signed() bool { return j.client.Signed() }

// Definition returns the job's definition. If the definition is unusable, the error wraps
// [*DefinitionError].
func (j *JobClient) Definition(ctx context.Context) (*workflow.JobDefinition, error) {
	r := call{
		method:  http.MethodGet,
		path:    j.path,
		token:   j.token,
		limit:   maxDefinitionBody,
		guarded: true,
	}
	a, err := j.send(ctx, "definition", r)
	if err != nil {
		return nil, err
	}
	if !json.Valid(a.body) {
		// The response was cut off or came from an intermediary; a retry might succeed.
		return nil, fmt.Errorf("%s %s at %s: the response is not complete JSON (%d bytes)", r.method, r.path, j.client.base.Host, len(a.body))
	}
	definition, err := workflow.ParseJobDefinition(a.body)
	if err != nil {
		return nil, &DefinitionError{Err: err}
	}
	return definition, nil
}

// DefinitionError reports a definition that is complete JSON but cannot be used.
type DefinitionError struct{ Err error }

func (e *DefinitionError) Error() string { return e.Err.Error() }

func (e *DefinitionError) Unwrap() error { return e.Err }

// Permanent returns true, because a job's definition never changes.
func (e *DefinitionError) Permanent() bool { return true }

// SetHolder sets the name under which the caller requests permission to start, and sends all later
// heartbeats; see [HeartbeatRequest]. It must be called before the first heartbeat.
func (j *JobClient) SetHolder(name string) { j.holder = name }

// Heartbeat extends the job's lease. A 410 means that the claim is superseded or the job's result
// is final.
func (j *JobClient) Heartbeat(ctx context.Context, phase Phase) (HeartbeatResponse, error) {
	r, err := j.call(http.MethodPost, "/heartbeat", HeartbeatRequest{Phase: phase, Holder: j.holder})
	if err != nil {
		return HeartbeatResponse{}, err
	}
	r.own = func(a answer) bool {
		var form struct {
			CancelRequested *bool `json:"cancelRequested"`
		}
		return a.decode(r, &form) == nil && form.CancelRequested != nil
	}
	a, err := j.send(ctx, "heartbeat", r)
	if err != nil || len(a.body) == 0 {
		return HeartbeatResponse{}, err
	}
	var response HeartbeatResponse
	return response, a.decode(r, &response)
}

// IdentityToken requests a new identity token for an audience, or for the server's default audience
// if audience is "". A 404 means that the server does not issue such tokens. A 503 means that the
// server has no key yet, or that the job has requested too many; see [APIError.RetryAfter].
func (j *JobClient) IdentityToken(ctx context.Context, audience string) (IdentityToken, error) {
	r, err := j.call(http.MethodPost, "/oidc-token", IdentityTokenRequest{Audience: audience})
	if err != nil {
		return IdentityToken{}, err
	}
	a, err := j.send(ctx, "identity token", r)
	if err != nil {
		return IdentityToken{}, err
	}
	var token IdentityToken
	if err := a.decode(r, &token); err != nil {
		return IdentityToken{}, err
	}
	switch {
	case token.Token == "" || token.ExpiresAt.IsZero():
		return IdentityToken{}, errors.New("the server's response to the request for an identity token has no token or no expiry time")
	case len(token.Token) > maxIdentityToken || strings.ContainsFunc(token.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return IdentityToken{}, errors.New("the server's response to the request for an identity token has an invalid token")
	}
	return token, nil
}

// OpenedSecrets requests the secrets of the environments that the job has opened, unless their count is known.
func (j *JobClient) OpenedSecrets(ctx context.Context, known int64) (OpenedSecrets, error) {
	r, err := j.call(http.MethodGet, "/opened-secrets", nil)
	if err != nil {
		return OpenedSecrets{}, err
	}
	r.query = url.Values{"known": {strconv.FormatInt(known, 10)}}
	a, err := j.send(ctx, "opened secrets", r)
	if err != nil {
		return OpenedSecrets{}, err
	}
	var opened OpenedSecrets
	return opened, a.decode(r, &opened)
}

// OpenEnvironments opens the environments of the deployment's settings with the rights of the job.
func (j *JobClient) OpenEnvironments(ctx context.Context) (JobEnvironments, error) {
	r, err := j.call(http.MethodPost, "/environments", nil)
	if err != nil {
		return JobEnvironments{}, err
	}
	r.limit = maxDefinitionBody
	a, err := j.send(ctx, "environments", r)
	if err != nil {
		return JobEnvironments{}, err
	}
	var opened JobEnvironments
	return opened, a.decode(r, &opened)
}

// StepStatus reports the state of a step.
func (j *JobClient) StepStatus(ctx context.Context, step int, req StepStatusRequest) error {
	r, err := j.call(http.MethodPatch, "/"+strconv.Itoa(step)+"/status", req)
	if err != nil {
		return err
	}
	_, err = j.send(ctx, "step status", r)
	return err
}

// PutLog sends the framed bytes of a step's stream that begin at offset. For a 409, the error is a
// [*LogGapError] with the offset to resume from. If compress is set, PutLog sends zstd where that
// is shorter, until the server rejects it with 415. Offsets always count uncompressed bytes.
func (j *JobClient) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (LogAck, error) {
	r := call{
		method: http.MethodPut,
		path:   j.path + "/" + strconv.Itoa(step) + "/log",
		query:  url.Values{"offset": {strconv.FormatInt(offset, 10)}},
		token:  j.token,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
		body:   framed,
		limit:  maxSmallBody,
		stream: true,
	}
	r.own = func(a answer) bool {
		_, err := a.logAck(r)
		return err == nil
	}
	packed := false
	if compress && !j.plain.Load() {
		if short := j.client.zstd.EncodeAll(framed, make([]byte, 0, len(framed)/4)); len(short) < len(framed) {
			r.body, packed = short, true
			r.header.Set("Content-Encoding", "zstd")
		}
	}
	if r.body == nil {
		r.body = []byte{} // an empty chunk requests the offsets
	}
	a, err := j.send(ctx, "log", r)
	if packed && StatusCode(err) == http.StatusUnsupportedMediaType && !Foreign(err) {
		j.plain.Store(true)
		return j.PutLog(ctx, step, offset, framed, false)
	}
	if refused := conflict(err); refused != nil {
		if ack, err := a.logAck(r); err == nil {
			return ack, &LogGapError{APIError: refused, Ack: ack}
		}
	}
	if err != nil {
		return LogAck{}, err
	}
	return a.logAck(r)
}

func (a answer) logAck(r call) (LogAck, error) {
	var ack struct {
		Received *int64 `json:"received"`
		Durable  *int64 `json:"durable"`
		Limit    int64  `json:"limit"`
	}
	if err := a.decode(r, &ack); err != nil {
		return LogAck{}, err
	}
	if ack.Received == nil || ack.Durable == nil {
		return LogAck{}, fmt.Errorf("%s %s: the response does not state how much of the log the server has", r.method, r.path)
	}
	return LogAck{Received: *ack.Received, Durable: *ack.Durable, Limit: ack.Limit}, nil
}

// conflict returns the [APIError] in err if it is a 409 from the server itself, or nil.
func conflict(err error) *APIError {
	refused, ok := errors.AsType[*APIError](err)
	if !ok || refused.Code != http.StatusConflict || refused.origin == originForeign {
		return nil
	}
	return refused
}

// PostLogLines sends log lines in the JSON form that every server accepts.
func (j *JobClient) PostLogLines(ctx context.Context, step int, lines LogLines) error {
	r, err := j.call(http.MethodPost, "/"+strconv.Itoa(step)+"/logs", lines)
	if err != nil {
		return err
	}
	r.stream = true
	_, err = j.send(ctx, "lines", r)
	return err
}

// Result reports the job's result, which ends the job. If the server lacks some of the log, the
// error is a [*ResultConflictError]. The caller must then send the missing log and repeat the
// result. If req.NotStarted is set and the job has permission to start, the error is [ErrStarted].
func (j *JobClient) Result(ctx context.Context, req ResultRequest) error {
	r, err := j.call(http.MethodPost, "/result", req)
	if err != nil {
		return err
	}
	a, err := j.send(ctx, "result", r)
	if _, unsigned := errors.AsType[*foreignError](err); unsigned {
		// The acknowledgement of a result has no recognizable form. An acknowledgement of log has
		// one, so it can show that the server has stopped signing.
		_, _ = j.PutLog(ctx, 0, 0, nil, false)
	}
	if refused := conflict(err); refused != nil {
		var conflict ResultConflict
		if a.decode(r, &conflict) == nil && len(conflict.Missing) > 0 {
			return &ResultConflictError{APIError: refused, Missing: conflict.Missing}
		}
		if req.NotStarted {
			return fmt.Errorf("%w: %w", ErrStarted, refused)
		}
	}
	if err != nil {
		return err
	}
	var members map[string]json.RawMessage
	if err := a.decode(r, &members); err != nil {
		return err
	}
	if members == nil || len(members) > 0 && !j.Signed() {
		// A proxy can also respond with an object, such as {"status":"ok"}.
		return fmt.Errorf("%s %s: the response %d does not have the form of an acknowledgement", r.method, r.path, a.status)
	}
	return nil
}
