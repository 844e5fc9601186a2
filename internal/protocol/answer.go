package protocol

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The server signs its responses, because a load balancer, a login page or a cache can respond in
// its place. A request carries a nonce. The response carries a digest of the nonce and the status,
// keyed with the request's credential.
const (
	HeaderNonce  = "X-Workflow-Nonce"  // in a request: random text
	HeaderAnswer = "X-Workflow-Answer" // in a response: the digest in hex
)

// maxNonce limits the length of a nonce that the server signs, in bytes.
const maxNonce = 128

// answerDigest returns the HMAC-SHA256 of the nonce, a space and the status, keyed with the
// credential.
func answerDigest(credential, nonce string, status int) string {
	mac := hmac.New(sha256.New, []byte(credential))
	mac.Write([]byte(nonce + " " + strconv.Itoa(status))) // writing to a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// SignAnswers returns a writer that signs the response to r if the client sent a nonce. The caller
// must call [AnswerSigner.Finish] after the handler has returned.
func SignAnswers(w http.ResponseWriter, r *http.Request) *AnswerSigner {
	s := &AnswerSigner{ResponseWriter: w}
	if nonce := r.Header.Get(HeaderNonce); len(nonce) <= maxNonce {
		s.nonce = nonce
	}
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	s.credential = strings.TrimSpace(credential)
	return s
}

// AnswerSigner is an [http.ResponseWriter] that signs the response.
type AnswerSigner struct {
	http.ResponseWriter
	nonce, credential string
	begun             bool
}

// Unwrap returns the underlying writer, for [http.ResponseController].
func (s *AnswerSigner) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// WriteHeader signs the response and sends its header.
func (s *AnswerSigner) WriteHeader(status int) {
	s.sign(status)
	s.ResponseWriter.WriteHeader(status)
}

// Write writes p. If no header was written, it first signs the response with status 200.
func (s *AnswerSigner) Write(p []byte) (int, error) {
	s.sign(http.StatusOK)
	return s.ResponseWriter.Write(p)
}

// Finish signs a response that the handler left to net/http, which has status 200 and no body.
func (s *AnswerSigner) Finish() { s.sign(http.StatusOK) }

func (s *AnswerSigner) sign(status int) {
	if s.begun || status < http.StatusOK { // an informational response precedes the final one
		return
	}
	s.begun = true
	if s.nonce != "" {
		s.Header().Set(HeaderAnswer, answerDigest(s.credential, s.nonce, status))
	}
}

// isOwn reports whether the response to a call with this token and nonce comes from the server
// itself.
func isOwn(token, nonce string, status int, header http.Header) bool {
	return hmac.Equal([]byte(header.Get(HeaderAnswer)), []byte(answerDigest(token, nonce, status)))
}

// The client accepts unsigned responses as the server's after this number of responses over this
// period. This applies to the same refusal from a server that has never signed, and to successes
// from a server that has signed.
const (
	unsignedTries = 20
	unsignedTime  = 10 * time.Minute
)

// unsigned counts unsigned responses.
type unsigned struct {
	tries int
	since time.Time
}

// more counts one response and reports whether enough responses arrived over enough time.
func (u *unsigned) more() bool {
	if u.tries == 0 {
		u.since = time.Now()
	}
	u.tries++
	return u.tries >= unsignedTries && time.Since(u.since) >= unsignedTime
}

// signing records whether the server signs its responses. A server can stop signing if an older
// version replaces it, or if a proxy removes the headers. To let jobs still report their results,
// unsigned successes in a form that only this API has are accepted after some time.
type signing struct {
	mu      sync.Mutex
	expects bool
	missing unsigned
}

// expected reports whether the server is known to sign, so that an unsigned response is foreign.
func (s *signing) expected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expects
}

// seen records that the server signs its responses.
func (s *signing) seen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expects, s.missing = true, unsigned{}
}

// missed records an unsigned success in this API's form, and reports whether the server has stopped
// signing.
func (s *signing) missed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing.more() {
		s.expects = false
	}
	return !s.expects
}

// refusals counts refusals of a job's calls, which become final only after repetition.
type refusals struct {
	mu    sync.Mutex
	calls map[string]*refusal // by kind of call
}

// refusal counts the latest consecutive responses with the same code to one kind of call. Code 0
// means success.
type refusal struct {
	code int
	unsigned
}

// final counts one response and reports whether it is a final refusal. Code 0 means success.
func (r *refusals) final(call string, code int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.calls[call]
	if last == nil || last.code != code {
		if r.calls == nil {
			r.calls = map[string]*refusal{}
		}
		last = &refusal{code: code}
		r.calls[call] = last
	}
	return last.more() && code != 0
}
