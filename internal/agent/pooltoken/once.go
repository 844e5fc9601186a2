package pooltoken

import (
	"context"
	"fmt"

	"workflowagent/internal/protocol"
)

// Exchange exchanges the token in the file of opts once, without waiting, to test the
// configuration. It ignores Problem and Log.
func Exchange(ctx context.Context, opts Options) (protocol.PoolToken, error) {
	subject, err := readFile(opts.File)
	if err != nil {
		return protocol.PoolToken{}, err
	}
	token, err := opts.Client.ExchangeToken(ctx, protocol.TokenExchange{
		Organization: opts.Organization, PoolID: opts.PoolID, SubjectToken: subject, Life: opts.Life,
	})
	if err != nil {
		return protocol.PoolToken{}, fmt.Errorf("exchange the token of oidc_token_file: %w", err)
	}
	return token, nil
}
