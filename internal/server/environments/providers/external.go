package providers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/url"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/outbound"
)

const externalName = "external"

var external = Provider{
	Name:        externalName,
	Description: "Asks a service of yours, an adapter, which reads values from any other store.",
	Inputs: encode(objectOf("the adapter, and what it is asked", []string{"url"}, fields{
		"url":     textOf("the https URL of the adapter; it is also the audience of the identity token"),
		"request": mapOf("what is sent to the adapter, as JSON", true),
		"secret":  flagOf("whether the whole response is a secret (default: true)"),
	})),
	Outputs: encode(objectOf("the response", []string{"response"}, fields{"response": mapOf("the JSON object of the adapter", true)})),
	open:    openExternal,
	calls:   true,
}

// maxRequest is the maximum size of what is sent to an adapter, in bytes.
const maxRequest = 256 << 10

func openExternal(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	address := in.required("url")
	hidden := in.flag("secret", true)
	body := []byte("{}")
	if v, ok := in.member("request"); ok {
		var err error
		if body, err = appendJSON(nil, wire.Value{Value: v}); err != nil || body[0] != '{' || len(body) > maxRequest {
			in.fail("request must be an object of at most %d KiB", maxRequest>>10)
		}
	}
	// The audience is the text, and the call goes to what it means: there must be one way to read it.
	u, err := url.Parse(address)
	if err != nil || u.String() != address || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" || len(address) > 2048 {
		in.fail("url must be an https URL in its normal form, without a user and a fragment, such as https://adapter.example.com/secrets")
	}
	if err := in.done(); err != nil {
		return wire.Value{}, err
	}
	sum := sha256.Sum256(body)
	token, err := c.token(ctx, address, nil, exchangeLifetime, map[string]any{"body_hash": "sha256-" + base64.StdEncoding.EncodeToString(sum[:])})
	if err != nil {
		return wire.Value{}, err
	}
	answer, err := c.do(ctx, outbound.Call{
		Method: "POST", URL: address, Body: body,
		Header: map[string]string{"Content-Type": "application/json", "Accept": "application/json", "Authorization": "Bearer " + token},
	})
	if err != nil {
		return wire.Value{}, err
	}
	if answer.Status != 200 {
		return wire.Value{}, c.refused("the adapter", answer.Status, "")
	}
	response, err := valueOf(answer.Body, hidden)
	if _, ok := response.Value.(map[string]wire.Value); err != nil || !ok {
		return wire.Value{}, c.unexpected("the adapter")
	}
	return result(map[string]wire.Value{"response": response}), nil
}
