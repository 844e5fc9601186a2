package credentials

import (
	"fmt"
	"strings"
)

// rule is the advice for refusals with a code, or with a part of the cloud's message in lower case.
// An empty member matches everything. The first matching rule applies.
type rule struct {
	code, text string
	advice     string // can contain the placeholders of [advise]
	again      bool
}

// reach is the advice if a cloud could not read the issuer's keys.
const reach = "ISSUER/.well-known/openid-configuration and the key set that it names must be reachable from the internet over https"

var awsRules = []rule{
	{text: "no openidconnect provider found", advice: "create an identity provider for ISSUER in the account of the role"},
	{text: "incorrect token audience", advice: "add the audience AUDIENCE to the identity provider for ISSUER"},
	{code: "InvalidIdentityToken", text: "retrieve verification key", advice: reach, again: true},
	{code: "InvalidIdentityToken", text: "thumbprint", advice: "update the thumbprint of the identity provider for ISSUER"},
	{code: "InvalidIdentityToken", advice: "check that the identity provider's URL is exactly ISSUER"},
	{code: "IDPCommunicationError", advice: reach, again: true},
	{code: "IDPRejectedClaim", advice: "check that the identity provider for ISSUER trusts the audience AUDIENCE"},
	{code: "ExpiredTokenException", advice: "check the clock of the server"},
	{code: "AccessDenied", advice: "check that the role exists, and that its trust policy allows sts:AssumeRoleWithWebIdentity with the subject SUBJECT and the audience AUDIENCE of ISSUER"},
	{code: "ValidationError", text: "durationseconds", advice: "change operationContext.oidc.aws.duration, or the maximum session duration of the role"},
	{code: "ValidationError", text: "rolesessionname", advice: "change operationContext.oidc.aws.sessionName"},
	{code: "ValidationError", advice: "check operationContext.oidc.aws in the deployment settings"},
	{code: "PackedPolicyTooLarge", advice: "remove entries from operationContext.oidc.aws.policyArns"},
	{code: "MalformedPolicyDocument", advice: "check operationContext.oidc.aws.policyArns"},
	{code: "RegionDisabledException", advice: "activate the token service in this region, or set AWS_REGION to another one"},
}

var azureRules = []rule{
	{code: "AADSTS700211", advice: "set the issuer of the application's federated credential to exactly ISSUER"},
	{code: "AADSTS700212", advice: "set the audience of the application's federated credential to AUDIENCE"},
	{code: "AADSTS700213", advice: "set the subject of the application's federated credential to SUBJECT"},
	{code: "AADSTS70021", advice: "add a federated credential to the application, with the issuer ISSUER, the subject SUBJECT and the audience AUDIENCE"},
	{code: "AADSTS700024", advice: "check the clock of the server"},
	{code: "AADSTS700016", advice: "check operationContext.oidc.azure.clientId and tenantId"},
	{code: "AADSTS90002", advice: "check operationContext.oidc.azure.tenantId"},
	{code: "AADSTS900023", advice: "check operationContext.oidc.azure.tenantId"},
	{code: "AADSTS90061", advice: reach, again: true},
	{code: "AADSTS50166", advice: reach, again: true},
	{code: "AADSTS7000112", advice: "enable the application in its tenant"},
}

var gcpRules = []rule{
	{code: "invalid_target", advice: "check projectId, workloadPoolId and providerId in operationContext.oidc.gcp"},
	{code: "unauthorized_client", advice: "the provider's attribute condition must accept the subject SUBJECT"},
	{text: "audience in id token", advice: "add AUDIENCE to the allowed audiences of the workload identity provider"},
	{text: "does not match the expected audience", advice: "add AUDIENCE to the allowed audiences of the workload identity provider"},
	{text: "issuer in id token", advice: "set the issuer of the workload identity provider to exactly ISSUER"},
	{text: "connecting to the given credential's issuer", advice: reach, again: true},
	{text: "expired", advice: "check the clock of the server"},
	{code: "invalid_grant", advice: "check the issuer, the keys and the allowed audiences of the workload identity provider; the token has the issuer ISSUER and the audience AUDIENCE"},
	{code: "PERMISSION_DENIED", text: "has not been used", advice: "enable the IAM Service Account Credentials API in the project of the service account"},
	{code: "PERMISSION_DENIED", advice: "grant the role roles/iam.workloadIdentityUser on the service account to the pool's principal with the subject SUBJECT"},
	{code: "NOT_FOUND", advice: "check operationContext.oidc.gcp.serviceAccount"},
	{code: "INVALID_ARGUMENT", text: "lifetime", advice: "change operationContext.oidc.gcp.tokenLifetime; more than an hour needs the constraint iam.allowServiceAccountCredentialLifetimeExtension"},
	{code: "INVALID_ARGUMENT", advice: "check operationContext.oidc.gcp.serviceAccount and tokenLifetime"},
}

// advise returns what to do about a refusal, and whether a later attempt might succeed.
func advise(rules []rule, code, text string, c claims) (advice string, again bool) {
	text = strings.ToLower(text)
	for _, r := range rules {
		if r.code != "" && r.code != code || !strings.Contains(text, r.text) {
			continue
		}
		advice = strings.NewReplacer(
			"ISSUER", c.Issuer, "SUBJECT", fmt.Sprintf("%q", c.Subject), "AUDIENCE", fmt.Sprintf("%q", string(c.Audience)),
		).Replace(r.advice)
		if strings.HasPrefix(c.Issuer, "http://") {
			advice = "no cloud accepts the issuer " + c.Issuer + ", which is not an https URL: the server needs another external URL or oidc_issuer_url"
		}
		return advice, r.again
	}
	return "", false
}
