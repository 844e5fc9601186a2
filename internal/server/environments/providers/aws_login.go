package providers

import (
	"context"
	"encoding/xml"
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/esc/wire"
	"workflowagent/internal/server/outbound"
)

var awsLogin = Provider{
	Name:        "aws-login",
	Description: "Logs in to AWS: with OpenID Connect as a role, or with static credentials.",
	Inputs: encode(objectOf("either oidc or static", nil, fields{
		"oidc": objectOf("the role to assume", []string{"roleArn", "sessionName"}, fields{
			"roleArn":           textOf("the ARN of the role"),
			"sessionName":       textOf("the name of the session"),
			"duration":          textOf("how long the credentials are valid: 15m to 12h, at most the maximum of the role; 2h by default"),
			"policyArns":        textsOf("the ARNs of policies that restrict the session"),
			"subjectAttributes": textsOf(subjectAttributes),
		}),
		"static": objectOf("credentials that exist", []string{"accessKeyId", "secretAccessKey"}, fields{
			"accessKeyId":     textOf("the id of the access key"),
			"secretAccessKey": textOf("the secret access key"),
			"sessionToken":    textOf("the session token, if any"),
		}),
	})),
	Outputs: encode(objectOf("credentials", []string{"accessKeyId", "secretAccessKey"}, fields{
		"accessKeyId":     secretOf("the id of the access key"),
		"secretAccessKey": secretOf("the secret access key"),
		"sessionToken":    secretOf("the session token; empty if there is none"),
	})),
	open:  openAWS,
	calls: true,
}

// stsHosts are the hosts of AWS's token service, by partition.
var stsHosts = map[string]string{
	"aws":        "sts.amazonaws.com",
	"aws-cn":     "sts.cn-north-1.amazonaws.com.cn",
	"aws-us-gov": "sts.us-gov-west-1.amazonaws.com",
	"aws-eusc":   "sts.eusc-de-east-1.amazonaws.eu",
}

var (
	roleForm    = newForm(`^arn:(aws|aws-cn|aws-us-gov|aws-eusc):iam::[0-9]{12}:role/[!-~]{1,512}$`)
	sessionForm = newForm(`^[A-Za-z0-9_+=,.@-]{2,64}$`)
)

// awsAdvice explains the codes of AWS that the provider knows.
var awsAdvice = map[string]string{
	"AccessDenied":                "the trust policy of the role does not accept the subject of the identity token",
	"ExpiredTokenException":       "the clock of the server is wrong",
	"IDPCommunicationError":       "AWS cannot reach the issuer of this server",
	"IDPRejectedClaim":            "AWS rejects the identity token",
	"InvalidIdentityToken":        "the account has no identity provider for the issuer and the audience, or AWS cannot fetch the issuer's keys",
	"MalformedPolicyDocument":     "a policy in policyArns is not accepted",
	"PackedPolicyTooLarge":        "policyArns are too large together",
	"RegionDisabledException":     "the account has disabled the region of the token service",
	"ValidationError":             "an input is not accepted; often, duration (2h by default) is longer than the role allows",
	"InvalidParameterCombination": "an input is not accepted",
}

func openAWS(ctx context.Context, c *Call) (wire.Value, error) {
	in := c.inputs()
	oidc, static := in.exclusive("oidc", "static")
	if static != nil {
		out := map[string]wire.Value{
			"accessKeyId": secret(static.required("accessKeyId")), "secretAccessKey": secret(static.required("secretAccessKey")),
			"sessionToken": secret(static.text("sessionToken")), // the CLI writes definitions that refer to it, also without one
		}
		if err := static.done(); err != nil {
			return wire.Value{}, err
		}
		return result(out), in.done()
	}
	if oidc == nil {
		return wire.Value{}, in.done()
	}
	role := oidc.like("roleArn", roleForm, "arn:aws:iam::123456789012:role/NAME")
	form := url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {"2011-06-15"}, "RoleArn": {role},
		"RoleSessionName": {oidc.like("sessionName", sessionForm, "pulumi-esc: 2 to 64 letters, digits and _+=,.@-")},
		"DurationSeconds": {strconv.Itoa(int(oidc.duration("duration", 15*time.Minute, 12*time.Hour, 2*time.Hour).Seconds()))},
	}
	for i, arn := range oidc.texts("policyArns") {
		form.Set("PolicyArns.member."+strconv.Itoa(i+1)+".arn", arn)
	}
	attributes := oidc.texts("subjectAttributes")
	if err := oidc.done(); err != nil {
		return wire.Value{}, err
	}
	if err := in.done(); err != nil {
		return wire.Value{}, err
	}
	token, err := c.cloudToken(ctx, "aws", attributes, exchangeLifetime)
	if err != nil {
		return wire.Value{}, err
	}
	form.Set("WebIdentityToken", token)
	answer, err := c.do(ctx, outbound.Call{
		Method: "POST", URL: "https://" + stsHosts[strings.Split(role, ":")[1]] + "/", Body: []byte(form.Encode()),
		Header: map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/xml"},
	})
	if err != nil {
		return wire.Value{}, err
	}
	var got struct {
		KeyID   string `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		Key     string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Session string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Code    string `xml:"Error>Code"`
	}
	err = xml.Unmarshal(answer.Body, &got)
	switch {
	case answer.Status != 200:
		return wire.Value{}, c.refused("AWS", answer.Status, awsAdvice[got.Code])
	case err != nil || got.KeyID == "" || got.Key == "" || got.Session == "":
		return wire.Value{}, c.unexpected("AWS")
	}
	return result(map[string]wire.Value{
		"accessKeyId": secret(got.KeyID), "secretAccessKey": secret(got.Key), "sessionToken": secret(got.Session),
	}), nil
}
