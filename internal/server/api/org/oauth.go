package org

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"workflowagent/internal/server/api/request"
	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/identity/oidc"
)

// maxExchange bounds the body of a token exchange in bytes, because the route needs no credential.
const maxExchange = 64 << 10

// token is the OAuth token endpoint. It needs no Authorization header: the identity token in the
// body is the credential. Its errors follow RFC 6749.
func (o *oidcRoutes) token(w http.ResponseWriter, r *http.Request) error {
	req, err := readExchange(w, r)
	if err != nil {
		return writeRefusal(w, r, err)
	}
	granted, err := o.oidc.Exchange(r.Context(), req)
	if err != nil {
		return writeRefusal(w, r, err)
	}
	w.Header().Set("Pragma", "no-cache") // RFC 6749 requires it next to Cache-Control
	return web.WriteJSON(w, r, http.StatusOK, struct {
		AccessToken     string `json:"access_token"`
		IssuedTokenType string `json:"issued_token_type"`
		TokenType       string `json:"token_type"`
		ExpiresIn       int64  `json:"expires_in"` // seconds
		Scope           string `json:"scope"`
	}{granted.AccessToken, granted.TokenType, "token", int64(granted.Lifetime.Seconds()), granted.Scope})
}

// writeRefusal responds with an error in the form that RFC 6749 defines.
func writeRefusal(w http.ResponseWriter, r *http.Request, err error) error {
	web.NoteError(r, err)
	body := struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}{}
	status := http.StatusBadRequest
	if refusal, ok := errors.AsType[*oidc.Refusal](err); ok {
		body.Error, body.Description = refusal.Code, refusal.Description
		if refusal.RetryAfter > 0 {
			status = http.StatusServiceUnavailable
			web.RetryAfter(w, refusal.RetryAfter)
		}
		return web.WriteJSON(w, r, status, body)
	}
	status, message := web.Classify(err)
	body.Description = web.Message(status, message)
	switch {
	case status == http.StatusServiceUnavailable:
		body.Error = "temporarily_unavailable"
		web.RetryAfter(w, 10*time.Second)
	case status >= 500:
		body.Error = "server_error"
	default:
		body.Error = "invalid_request"
	}
	return web.WriteJSON(w, r, status, body)
}

// readExchange reads a form or JSON. It ignores the Content-Type header, because a form never
// begins with a brace.
func readExchange(w http.ResponseWriter, r *http.Request) (oidc.Request, error) {
	b := request.Ordinary(r)
	b.Sent, b.Inflated = maxExchange, maxExchange
	data, err := request.Read(w, r, b)
	if err != nil {
		return oidc.Request{}, err
	}
	if data = bytes.TrimSpace(data); bytes.HasPrefix(data, []byte("{")) {
		return readExchangeJSON(data)
	}
	form, err := url.ParseQuery(string(data))
	if err != nil {
		return oidc.Request{}, &oidc.Refusal{Code: "invalid_request", Description: "the body is neither a form nor JSON"}
	}
	var repeated string
	for _, values := range form {
		for _, v := range values {
			if !request.IsText(v) {
				return oidc.Request{}, &oidc.Refusal{Code: "invalid_request", Description: "the form contains a NUL or is not UTF-8"}
			}
		}
	}
	get := func(name string) string {
		if len(form[name]) > 1 {
			repeated = name
		}
		return form.Get(name)
	}
	req := oidc.Request{
		GrantType: get("grant_type"), Audience: get("audience"), SubjectTokenType: get("subject_token_type"),
		SubjectToken: get("subject_token"), RequestedTokenType: get("requested_token_type"),
		Scope: get("scope"), Expiration: get("expiration"),
	}
	if repeated != "" {
		return req, &oidc.Refusal{Code: "invalid_request", Description: repeated + " is given more than once"}
	}
	return req, nil
}

func readExchangeJSON(data []byte) (oidc.Request, error) {
	var body struct {
		GrantType          string      `json:"grant_type"`
		Audience           string      `json:"audience"`
		SubjectTokenType   string      `json:"subject_token_type"`
		SubjectToken       string      `json:"subject_token"`
		RequestedTokenType string      `json:"requested_token_type"`
		Scope              string      `json:"scope"`
		Expiration         json.Number `json:"expiration"` // a number, or a string with a number
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return oidc.Request{}, request.InvalidJSON(err)
	}
	return oidc.Request{
		GrantType: body.GrantType, Audience: body.Audience, SubjectTokenType: body.SubjectTokenType, SubjectToken: body.SubjectToken,
		RequestedTokenType: body.RequestedTokenType, Scope: body.Scope, Expiration: body.Expiration.String(),
	}, nil
}
