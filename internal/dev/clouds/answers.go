package clouds

import (
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxSession is the maximum session duration of the role.
const maxSession = 2 * time.Hour

var isSessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`).MatchString

func (c *Clouds) aws(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // a malformed form lacks the action
	refuse := func(status int, code, message string) {
		var text strings.Builder
		_ = xml.EscapeText(&text, []byte(message))
		c.answer(w, r, "text/xml", status, fmt.Appendf(nil, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>r-1</RequestId></ErrorResponse>`, code, &text))
	}
	lifetime := time.Hour
	if text := r.PostForm.Get("DurationSeconds"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 900 {
			refuse(400, "ValidationError", fmt.Sprintf("1 validation error detected: Value '%s' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900", text))
			return
		}
		lifetime = time.Duration(seconds) * time.Second
	}
	name := r.PostForm.Get("RoleSessionName")
	_, err := c.verify(r.Context(), r.PostForm.Get("WebIdentityToken"))
	switch {
	case r.PostForm.Get("Action") != "AssumeRoleWithWebIdentity" || r.PostForm.Get("Version") != "2011-06-15":
		refuse(400, "InvalidAction", "Could not find operation "+r.PostForm.Get("Action"))
	case !isSessionName(name):
		refuse(400, "ValidationError", fmt.Sprintf("1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern", name))
	case lifetime > maxSession:
		refuse(400, "ValidationError", "The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	case errors.Is(err, errIssuer):
		refuse(400, "InvalidIdentityToken", "No OpenIDConnect provider found in your account for the issuer")
	case errors.Is(err, errKeys):
		refuse(400, "InvalidIdentityToken", "Couldn't retrieve verification key from your identity provider, please reference AssumeRoleWithWebIdentity documentation for requirements")
	case errors.Is(err, errAudience):
		refuse(400, "InvalidIdentityToken", "Incorrect token audience")
	case errors.Is(err, errExpired):
		refuse(400, "ExpiredTokenException", "Token expired: current date/time must be before the expiration date/time")
	case err != nil && !errors.Is(err, errSubject):
		refuse(400, "InvalidIdentityToken", "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)")
	case err != nil || r.PostForm.Get("RoleArn") != RoleARN:
		refuse(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	default:
		if c.Lifetime > 0 {
			lifetime = c.Lifetime
		}
		id, secret, session := "ASIA"+rand.Text()[:16], rand.Text()+"/+"+rand.Text()[:12], "FwoG/"+rand.Text()+"+"+rand.Text()+"=="
		c.answer(w, r, "text/xml", 200, fmt.Appendf(nil, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Audience>x</Audience><AssumedRoleUser><AssumedRoleId>AROA:%s</AssumedRoleId><Arn>arn:aws:sts::123456789012:assumed-role/deployer/%[1]s</Arn></AssumedRoleUser><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult><ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>`,
			name, id, secret, session, time.Now().Add(lifetime).UTC().Format(time.RFC3339Nano)), id, secret, session)
	}
}

func (c *Clouds) azure(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // a malformed form lacks the client
	refuse := func(status int, kind, code, message string) {
		number, _ := strconv.Atoi(strings.TrimPrefix(code, "AADSTS"))
		c.answer(w, r, "application/json; charset=utf-8", status, map[string]any{
			"error": kind, "error_codes": []int{number}, "correlation_id": "c-1",
			"error_description": code + ": " + message + " Trace ID: t-1 Correlation ID: c-1 Timestamp: 2026-01-01 00:00:00Z",
		})
	}
	claims, err := c.verify(r.Context(), r.PostForm.Get("client_assertion"))
	switch {
	case r.URL.Path != "/"+TenantID+"/oauth2/v2.0/token":
		refuse(400, "invalid_request", "AADSTS90002", "Tenant not found. Check to make sure you have the correct tenant ID and are signing into the correct cloud.")
	case r.PostForm.Get("client_id") != ClientID:
		refuse(400, "unauthorized_client", "AADSTS700016", "Application with identifier '"+r.PostForm.Get("client_id")+"' was not found in the directory 'Acme'.")
	case r.PostForm.Get("grant_type") != "client_credentials" || r.PostForm.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || !strings.HasSuffix(r.PostForm.Get("scope"), "/.default"):
		refuse(400, "invalid_request", "AADSTS900144", "The request body must contain other parameters.")
	case errors.Is(err, errIssuer):
		refuse(401, "invalid_client", "AADSTS700211", "No matching federated identity record found for presented assertion issuer '"+claims.Issuer+"'.")
	case errors.Is(err, errAudience):
		refuse(401, "invalid_client", "AADSTS700212", "No matching federated identity record found for presented assertion audience.")
	case errors.Is(err, errSubject):
		refuse(401, "invalid_client", "AADSTS700213", "No matching federated identity record found for presented assertion subject '"+claims.Subject+"'.")
	case errors.Is(err, errKeys):
		refuse(401, "invalid_client", "AADSTS90061", "Request to External OIDC endpoint failed.")
	case errors.Is(err, errExpired):
		refuse(401, "invalid_client", "AADSTS700024", "Client assertion is not within its valid time range.")
	case err != nil:
		refuse(401, "invalid_client", "AADSTS50027", "JWT token is invalid or malformed.")
	default:
		token := "azure." + rand.Text() + "." + rand.Text()
		c.answer(w, r, "application/json; charset=utf-8", 200, map[string]any{"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599, "access_token": token}, token)
	}
}

func (c *Clouds) exchange(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // a malformed form lacks the audience
	refuse := func(code, message string) {
		c.answer(w, r, "application/json; charset=UTF-8", 400, map[string]string{"error": code, "error_description": message})
	}
	_, err := c.verify(r.Context(), r.PostForm.Get("subject_token"))
	switch {
	case r.PostForm.Get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange" || r.PostForm.Get("subject_token_type") != "urn:ietf:params:oauth:token-type:jwt":
		refuse("invalid_request", "Invalid value for \"grant_type\".")
	case r.PostForm.Get("audience") != "//iam.googleapis.com/projects/"+ProjectID+"/locations/global/workloadIdentityPools/"+PoolID+"/providers/"+ProviderID:
		refuse("invalid_target", "The target service indicated by the \"audience\" parameters is invalid. This might either be because the pool or provider is disabled or deleted or because it doesn't exist.")
	case errors.Is(err, errIssuer):
		refuse("invalid_grant", "The issuer in ID Token does not match the expected issuer.")
	case errors.Is(err, errKeys):
		refuse("invalid_grant", "Error connecting to the given credential's issuer.")
	case errors.Is(err, errAudience):
		refuse("invalid_grant", "The audience in ID Token does not match the expected audience.")
	case errors.Is(err, errExpired):
		refuse("invalid_grant", "ID Token is stale to sign-in: it has expired.")
	case errors.Is(err, errSubject):
		refuse("unauthorized_client", "The given credential is rejected by the attribute condition.")
	case err != nil:
		refuse("invalid_grant", "Invalid JWT signature.")
	default:
		token := "ya29.federated-" + rand.Text()
		c.answer(w, r, "application/json; charset=UTF-8", 200, map[string]any{
			"access_token": token, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3599,
		}, token)
	}
}

func (c *Clouds) impersonate(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Scope    []string
		Lifetime string
	}
	decodeErr := json.NewDecoder(r.Body).Decode(&asked)
	refuse := func(code int, status, message string) {
		c.answer(w, r, "application/json; charset=UTF-8", code, map[string]any{"error": map[string]any{"code": code, "status": status, "message": message}})
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	known := false
	for _, call := range c.Calls() {
		for _, token := range call.Tokens {
			known = known || bearer != "" && token == bearer
		}
	}
	lifetime := time.Hour
	if asked.Lifetime != "" {
		lifetime, _ = time.ParseDuration(asked.Lifetime)
	}
	switch {
	case decodeErr != nil || len(asked.Scope) == 0:
		refuse(400, "INVALID_ARGUMENT", "Invalid JSON payload received.")
	case !known:
		refuse(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
	case r.URL.Path != "/v1/projects/-/serviceAccounts/"+ServiceAccount+":generateAccessToken":
		refuse(403, "PERMISSION_DENIED", "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).")
	case lifetime <= 0 || lifetime > time.Hour:
		refuse(400, "INVALID_ARGUMENT", "The lifetime of the token exceeds the maximum of 3600s.")
	default:
		token := "ya29.account-" + rand.Text()
		c.answer(w, r, "application/json; charset=UTF-8", 200, map[string]string{"accessToken": token, "expireTime": time.Now().Add(lifetime).UTC().Format(time.RFC3339)}, token)
	}
}
