package protocol

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The values of a token exchange (RFC 8693), as Pulumi Cloud documents them.
const (
	grantTokenExchange  = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeIDToken         = "urn:ietf:params:oauth:token-type:id_token"
	typeRunnerToken     = "urn:pulumi:token-type:access_token:runner"
	audienceOrg         = "urn:pulumi:org:"
	scopeRunner         = "runner:"
	maxTokenLife        = 366 * 24 * time.Hour
	maxAccessToken      = 8 << 10 // bytes
	mediaForm           = "application/x-www-form-urlencoded"
	defaultTokenLife    = 2 * time.Hour // documented by Pulumi Cloud, for an answer without one
	exchangePath        = "/api/oauth/token"
	headerContentType   = "Content-Type"
	parameterExpiration = "expiration"
)

// TokenExchange requests an agent pool's token in exchange for an OpenID Connect issuer's.
type TokenExchange struct {
	Organization string
	PoolID       string
	SubjectToken string        // the issuer's
	Life         time.Duration // to request; 0 leaves it to the server
}

// PoolToken is the token of an agent pool and its lifetime.
type PoolToken struct {
	Value string
	Life  time.Duration // from the answer on; always positive
}

// ExchangeToken exchanges a token. It is sent once and bypasses the circuit breaker; the request
// carries no other token, and no error holds one.
func (c *Client) ExchangeToken(ctx context.Context, e TokenExchange) (PoolToken, error) {
	form := url.Values{
		"grant_type":           {grantTokenExchange},
		"audience":             {audienceOrg + e.Organization},
		"subject_token_type":   {typeIDToken},
		"subject_token":        {e.SubjectToken},
		"requested_token_type": {typeRunnerToken},
		"scope":                {scopeRunner + e.PoolID},
	}
	if e.Life > 0 {
		form.Set(parameterExpiration, strconv.FormatInt(ceilSeconds(e.Life), 10))
	}
	r := call{
		method: http.MethodPost,
		path:   exchangePath,
		header: http.Header{headerContentType: {mediaForm}},
		body:   []byte(form.Encode()),
		secret: e.SubjectToken,
		limit:  maxSmallBody,
	}
	a, err := c.send(ctx, r)
	if err != nil {
		return PoolToken{}, err
	}
	var got struct {
		AccessToken string  `json:"access_token"`
		ExpiresIn   float64 `json:"expires_in"` // seconds
	}
	if err := a.decode(r, &got); err != nil {
		return PoolToken{}, err
	}
	switch {
	case got.AccessToken == "":
		return PoolToken{}, errors.New("the server's answer to the token exchange has no access_token")
	case len(got.AccessToken) > maxAccessToken || strings.ContainsFunc(got.AccessToken, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }):
		return PoolToken{}, errors.New("the server's answer to the token exchange has an access_token that cannot be one")
	}
	token := PoolToken{Value: got.AccessToken, Life: defaultTokenLife}
	switch {
	case got.ExpiresIn >= maxTokenLife.Seconds():
		token.Life = maxTokenLife
	case got.ExpiresIn >= 1:
		token.Life = time.Duration(got.ExpiresIn * float64(time.Second))
	case e.Life > 0:
		token.Life = e.Life
	}
	return token, nil
}
