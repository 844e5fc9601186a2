package protocol

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"workflowagent/internal/termtext"
)

// ErrCircuitOpen is returned, without sending a request, while the circuit breaker is open.
// [Client.AwaitRecovery] waits until the breaker closes.
var ErrCircuitOpen = errors.New("the server failed several times in a row: polling pauses until a probe reaches it")

// APIError is a response whose status is not 2xx.
type APIError struct {
	Method  string
	Path    string // without the query
	Code    int    // HTTP status
	Message string // the server's message, safe to print; can be empty
	Wait    time.Duration

	origin origin
	// formless means that the response lacks the form of the API's errors, like a proxy's error
	// page.
	formless bool
}

// origin classifies the sender of a response.
type origin int

const (
	// originUnknown means that the server has never signed a response.
	originUnknown origin = iota
	// originServer means that the response is signed, or was repeated long enough to count as the
	// server's.
	originServer
	// originJob replaces originUnknown for a job's call, where a wrong guess would do damage.
	originJob
	// originStranger means that a job's call got a signed response from a server that might not
	// know the job.
	originStranger
	// originForeign means that the server signs its responses, but this response is not signed.
	originForeign
)

func (e *APIError) Error() string {
	text := fmt.Sprintf("%s %s: the server answered %d %s", e.Method, e.Path, e.Code, http.StatusText(e.Code))
	text = strings.TrimRight(text, " ")
	message := strings.TrimPrefix(e.Message, http.StatusText(e.Code)+": ")
	if message != "" && !strings.EqualFold(message, http.StatusText(e.Code)) {
		text += ": " + message
	}
	switch hint := hints[e.Code]; {
	case e.origin == originForeign:
		text += " (" + foreignHint + ")"
	case hint != "" && !strings.HasPrefix(message, "the token is"):
		text += " (" + hint + ")"
	}
	return text
}

const foreignHint = "not signed by the server: a proxy or load balancer answered in its place, or an older server replaced it"

var hints = map[int]string{
	http.StatusUnauthorized:      "the token is wrong, expired or revoked",
	http.StatusProxyAuthRequired: "the proxy requires credentials: set them in HTTPS_PROXY",
}

// StatusCode returns the response's HTTP status.
func (e *APIError) StatusCode() int { return e.Code }

// Permanent reports whether the server would respond the same way if the call were repeated.
//
// The response to a job's call is final only if the server signed it. If the server does not sign,
// or might not know the job, the response becomes final after enough repetitions. For other calls
// to a server that does not sign, the form of the response decides, because a load balancer without
// a healthy upstream can respond with 401, 403 or 404 itself.
func (e *APIError) Permanent() bool {
	switch e.Code {
	case http.StatusBadRequest, http.StatusGone:
		return e.origin == originServer || e.origin == originUnknown
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return e.origin == originServer || e.origin == originUnknown && !e.formless
	}
	return false
}

// RetryAfter returns the pause that the server requested, limited to an hour, or 0 if it requested
// none.
func (e *APIError) RetryAfter() time.Duration { return e.Wait }

// StatusCode returns the HTTP status of the [APIError] in err's chain, or 0.
func StatusCode(err error) int {
	var e interface{ StatusCode() int }
	if errors.As(err, &e) {
		return e.StatusCode()
	}
	return 0
}

// Permanent reports whether repeating the call is pointless. Transport errors are not permanent.
func Permanent(err error) bool {
	var e interface{ Permanent() bool }
	return errors.As(err, &e) && e.Permanent()
}

// UnknownCall reports whether err is the response of a server that does not know the call, such as a
// stock server.
func UnknownCall(err error) bool {
	return slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}, StatusCode(err))
}

// Gone reports whether err is a 410 from the server itself, which means that the claim is
// superseded or the job's result is final.
func Gone(err error) bool { return StatusCode(err) == http.StatusGone && Permanent(err) }

// Refused reports whether err is a signed or final response that denies the caller its job. After
// such a response, the caller must not start the job. It must end a running job only after a
// [Permanent] error.
func Refused(err error) bool {
	if code := StatusCode(err); code != http.StatusGone && !strange(code) {
		return false
	}
	e, ok := errors.AsType[*APIError](err)
	return ok && (e.origin == originStranger || e.Permanent())
}

// Foreign reports whether err stems from a response that an intermediary sent in place of a signing
// server.
func Foreign(err error) bool {
	if _, ok := errors.AsType[*foreignError](err); ok {
		return true
	}
	e, ok := errors.AsType[*APIError](err)
	return ok && e.origin == originForeign
}

// foreignError reports a successful response that did not come from the server.
type foreignError struct {
	method, path, host string
	code               int
}

func (e *foreignError) Error() string {
	return fmt.Sprintf("%s %s at %s: the response %d is %s", e.method, e.path, e.host, e.code, foreignHint)
}

// LogGapError is the 409 response to a log chunk that would leave a gap. The sender must resume at
// Ack.Received.
type LogGapError struct {
	*APIError
	Ack LogAck
}

func (e *LogGapError) Error() string {
	return fmt.Sprintf("%s: the server has the stream up to byte %d", e.APIError.Error(), e.Ack.Received)
}

func (e *LogGapError) Unwrap() error { return e.APIError }

// ResultConflictError is the 409 response to a result that arrived before the end of the log.
type ResultConflictError struct {
	*APIError
	Missing []MissingLog
}

func (e *ResultConflictError) Error() string {
	return fmt.Sprintf("%s: %d log streams are not complete yet", e.APIError.Error(), len(e.Missing))
}

func (e *ResultConflictError) Unwrap() error { return e.APIError }

// ErrStarted is the error of a result that states that the job was not started, although the server
// has permitted a runner to start it.
var ErrStarted = errors.New("the server has permitted a runner to start the job")

// transportError returns an error that names the failed call but omits net/http's URL, which can
// contain a secret.
func transportError(method, path, host string, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return fmt.Errorf("%s %s at %s: %w (if this is your own certificate authority, set ca_certificate_file)", method, path, host, err)
	}
	return fmt.Errorf("%s %s at %s: %w", method, path, host, err)
}

// apiError returns the error for a response. It removes secrets from the server's message.
func apiError(method, path string, secrets []string, status int, header http.Header, body []byte) *APIError {
	var parsed struct {
		Code        int    `json:"code"`
		Message     string `json:"message"`
		Error       any    `json:"error"` // a string, with a description, in OAuth errors (RFC 6749)
		Description string `json:"error_description"`
	}
	message, formless := "", true
	if err := json.Unmarshal(body, &parsed); err == nil {
		kind, _ := parsed.Error.(string)
		message = cmp.Or(parsed.Message, parsed.Description, kind)
		formless = parsed.Code != status && kind == ""
	} else if !isPage(header, body) {
		message = string(body) // a proxy's HTML page explains nothing
	}
	for _, secret := range secrets {
		if secret != "" {
			message = strings.ReplaceAll(message, secret, "[REDACTED]")
		}
	}
	return &APIError{
		Method:   method,
		Path:     path,
		Code:     status,
		Message:  termtext.OneLine(message, maxMessage),
		Wait:     parseRetryAfter(header.Get("Retry-After"), time.Now()),
		formless: formless,
	}
}

func isPage(header http.Header, body []byte) bool {
	return strings.HasPrefix(header.Get("Content-Type"), "text/html") || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// maxMessage limits the server's message in an error, in bytes.
const maxMessage = 500
