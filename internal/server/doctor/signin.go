package doctor

import (
	"context"
	"fmt"
	"strings"

	"workflowagent/internal/checkup"
	"workflowagent/internal/server/identity/signin/openid"
	"workflowagent/internal/words"
)

// checkSignIn fetches what the identity providers publish, each with its own authority.
func (e *examination) checkSignIn(ctx context.Context) checkup.Result {
	if e.cfg.SignInFile == "" {
		return checkup.Skip("sign_in_file is not set, so no identity provider is in use")
	}
	providers, err := openid.Load(e.cfg.SignInFile)
	if err != nil {
		return checkup.Skip("not checked, because sign_in_file cannot be read") // the check of the files reports it
	}
	problems := openid.Check(ctx, providers)
	var details, issuers []string
	for i, p := range providers {
		issuers = append(issuers, p.Issuer)
		if problems[i] != nil {
			details = append(details, fmt.Sprintf("%s: %v", p.ID, problems[i]))
		}
	}
	if len(details) > 0 {
		return fail(signInFails, fmt.Sprintf("users cannot sign in at %d of %s", len(details), words.Count(int64(len(providers)), "identity provider")),
			"correct sign_in_file: the issuer, and for a provider with a private authority ca_certificate_file", details...)
	}
	return checkup.OK("the configuration of " + strings.Join(issuers, ", ") + " is what sign-in needs; whether the client is registered there is not checked")
}
